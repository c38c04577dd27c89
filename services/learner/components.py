"""The model of a learner: built once, when the first actor (or a checkpoint) says the specs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seedbed.config import Experiment
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.tls import Tls
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import EnvironmentSpec

if TYPE_CHECKING:  # these import Keras, whose backend must be chosen first
    from seedbed.agents.inference_step import InferenceStep
    from seedbed.agents.protocol import Agent
    from seedbed.backends.protocol import Backend, Trainer
    from seedbed.services.learner.training.fused_replay import FusedReplay
    from seedbed.services.learner.training.replay_source import ReplaySource
    from seedbed.services.learner.unrolls.sequences import SequencePlan
    from seedbed.telemetry.replay import ReplaySourceStats
    from seedbed.types import Params


SEEDS_APART = 1_000_003  # of two learners' actions


class ParameterStore:
    """The newest published parameters. Training publishes, inference reads between two batches."""

    def __init__(self) -> None:
        self._newest: tuple[Params, int] | None = None

    def publish(self, params: Params, version: int) -> None:
        """Replace the newest as a whole. `params` must never change afterwards."""
        self._newest = (params, version)

    def newest(self) -> tuple[Params, int]:
        """Parameters and their version (the count of updates that made them)."""
        assert self._newest is not None
        return self._newest


@dataclass
class LearnerComponents:
    """Everything that depends on the environment's specs."""

    spec: EnvironmentSpec
    unroll: UnrollSpec | SequencePlan
    backend: Backend
    agent: Agent
    trainer: Trainer
    inference: InferenceStep
    experience: ReplaySource | FusedReplay | None = None  # of agents that train from replay


class ComponentsFuture:
    """A `LearnerComponents` to come: the event loop fixes the specs, the training thread builds."""

    def __init__(self, spec: EnvironmentSpec | None) -> None:
        self.spec = spec
        self._spec_known = threading.Event()
        if spec is not None:
            self._spec_known.set()
        self._unroll: Future[UnrollSpec | SequencePlan] = Future()
        self._built: Future[LearnerComponents] = Future()

    def fix_spec(self, spec: EnvironmentSpec) -> None:
        """The first session's specs are everybody's."""
        if self.spec is None:
            self.spec = spec
            self._spec_known.set()

    def wait_for_spec(self, timeout_s: float) -> EnvironmentSpec | None:
        """The specs, or None after `timeout_s` without any."""
        self._spec_known.wait(timeout_s)
        return self.spec

    def set(self, built: LearnerComponents) -> None:
        """The model is there."""
        self._unroll.set_result(built.unroll)
        self._built.set_result(built)

    async def ready(self) -> UnrollSpec | SequencePlan:
        """Wait for the model in an event loop; cancelling the wait cancels nothing else."""
        return await asyncio.shield(asyncio.wrap_future(self._unroll))

    def built(self, timeout_s: float) -> LearnerComponents | None:
        """The model, or None after `timeout_s`."""
        try:
            return self._built.result(timeout_s)
        except TimeoutError:
            return None

    @property
    def is_built(self) -> bool:
        """Whether it is there."""
        return self._built.done()


def build(
    experiment: Experiment,
    spec: EnvironmentSpec,
    backend: Backend,
    replay: ReplaySourceStats | None = None,
    tls: Tls | None = None,
    rank: int = 0,
) -> LearnerComponents:
    """Make agent, trainer, inference and, where it needs one, replay for `spec`.

    Args:
        backend: the process's own.
        replay: what is to be counted of a replay.
        tls: replay shards need a certificate of its authority.
        rank: of several learners, which all begin with the same parameters and act differently.
    """
    from seedbed.agents.factory import build_agent, build_optimizer
    from seedbed.agents.inference_step import InferenceStep
    from seedbed.agents.training_step import replay_function, train_function
    from seedbed.services.learner.training.replay_factory import make_experience
    from seedbed.services.learner.unrolls.sequences import SequencePlan
    from seedbed.telemetry.replay import ReplaySourceStats

    learner = experiment.learner
    agent: Any = build_agent(experiment, spec)
    unroll: UnrollSpec | SequencePlan
    experience: ReplaySource | FusedReplay | None = None
    # Frames that come in for each update, by which a schedule counts.
    frames_per_update: float = learner.unroll_length * learner.batch_size * spec.action_repeat
    if trains_from_replay(agent):
        sequence = SequenceSpec(
            observation=spec.observation,
            steps=learner.unroll_length,
            burn_in=agent.burn_in,
            lookahead=agent.lookahead,
            frame_stack=learner.frame_stack,
            state_size=agent.body.state_size,
            environment=spec.name,
            actions=spec.actions,
        )
        unroll = SequencePlan(sequence, agent.behaviour, agent.initial_priority)
        loss = replay_function(agent, unroll, learner.replay.importance_sampling_exponent)
        frames_per_update = frames_per_update / learner.replay.ratio
    else:
        unroll = UnrollSpec(
            observation=spec.observation,
            unroll_length=learner.unroll_length,
            frame_stack=learner.frame_stack,
            state_size=agent.body.state_size,
            behaviour=agent.behaviour,
        )
        loss = train_function(agent, unroll)
        frames_per_update = frames_per_update / learner.epochs_per_batch
    # What the others bring in meanwhile counts too.
    frames_per_update *= experiment.gossip.replicas
    trainer = backend.trainer(
        agent.model,
        build_optimizer(experiment, frames_per_update),
        loss,
        learner.optimizer.max_gradient_norm,
        getattr(agent, "target_update_period", 0),
    )
    if isinstance(unroll, SequencePlan):
        experience = make_experience(
            experiment, unroll.spec, backend, trainer, replay or ReplaySourceStats(), tls
        )
    inference = InferenceStep(
        backend,
        agent,
        spec,
        learner.frame_stack,
        learner.inference.slots,
        learner.inference.max_batch_envs,
        seed=experiment.seed + SEEDS_APART * rank,
    )
    return LearnerComponents(spec, unroll, backend, agent, trainer, inference, experience)


def trains_from_replay(agent: Agent) -> bool:
    """Whether it is a `ReplayAgent`."""
    return hasattr(agent, "initial_priority")
