"""The model of a learner: built once, when the first actor (or a checkpoint) says the specs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.common.config import Experiment
from services.common.spec import ArraySpec, EnvironmentSpec
from services.learner.unrolls.unroll import UnrollSpec

if TYPE_CHECKING:  # these import Keras, whose backend must be chosen first
    from services.learner.agents.protocol import Agent, Params
    from services.learner.backend.protocol import Backend, Trainer
    from services.learner.inference import InferenceStep


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
class Built:
    """Everything that depends on the environment's specs."""

    spec: EnvironmentSpec
    unroll: UnrollSpec
    backend: Backend
    agent: Agent
    trainer: Trainer
    inference: InferenceStep


class Model:
    """A `Built` to come: the event loop fixes the specs, the training thread builds."""

    def __init__(self, spec: EnvironmentSpec | None) -> None:
        self.spec = spec
        self._spec_known = threading.Event()
        if spec is not None:
            self._spec_known.set()
        self._unroll: Future[UnrollSpec] = Future()
        self._built: Future[Built] = Future()

    def fix_spec(self, spec: EnvironmentSpec) -> None:
        """The first session's specs are everybody's."""
        if self.spec is None:
            self.spec = spec
            self._spec_known.set()

    def wait_for_spec(self, timeout_s: float) -> EnvironmentSpec | None:
        """The specs, or None after `timeout_s` without any."""
        self._spec_known.wait(timeout_s)
        return self.spec

    def set(self, built: Built) -> None:
        """The model is there."""
        self._unroll.set_result(built.unroll)
        self._built.set_result(built)

    async def ready(self) -> UnrollSpec:
        """Wait for the model in an event loop; cancelling the wait cancels nothing else."""
        return await asyncio.shield(asyncio.wrap_future(self._unroll))

    def built(self, timeout_s: float) -> Built | None:
        """The model, or None after `timeout_s`."""
        try:
            return self._built.result(timeout_s)
        except TimeoutError:
            return None

    @property
    def is_built(self) -> bool:
        """Whether it is there."""
        return self._built.done()


def build(experiment: Experiment, spec: EnvironmentSpec, backend: Backend) -> Built:
    """Make agent, trainer and inference for `spec`. `backend` is the process's own."""
    from services.learner.build import build_agent, build_optimizer
    from services.learner.inference import InferenceStep
    from services.learner.training import train_function

    learner = experiment.learner
    agent = build_agent(experiment, spec)
    unroll = UnrollSpec(
        observation=spec.observation,
        unroll_length=learner.unroll_length,
        frame_stack=learner.frame_stack,
        state_size=agent.body.state_size,
        behaviour=agent.behaviour,
    )
    frames_per_batch = learner.unroll_length * learner.batch_size * spec.action_repeat
    trainer = backend.trainer(
        agent.model,
        build_optimizer(experiment, frames_per_batch / learner.passes),
        train_function(agent, unroll),
        learner.optimizer.max_gradient_norm,
    )
    inference = InferenceStep(
        backend,
        agent,
        spec,
        learner.frame_stack,
        learner.inference.slots,
        learner.inference.max_batch_environments,
        seed=experiment.seed,
    )
    return Built(spec, unroll, backend, agent, trainer, inference)


def spec_to_json(spec: EnvironmentSpec) -> dict[str, Any]:
    """As a checkpoint keeps it."""
    return {
        "name": spec.name,
        "observation_shape": list(spec.observation.shape),
        "observation_dtype": spec.observation.dtype,
        "actions": spec.actions,
        "action_repeat": spec.action_repeat,
    }


def spec_from_json(tree: dict[str, Any]) -> EnvironmentSpec:
    """From a checkpoint's `spec_to_json`."""
    return EnvironmentSpec(
        name=tree["name"],
        observation=ArraySpec(tuple(tree["observation_shape"]), tree["observation_dtype"]),
        actions=tree["actions"],
        action_repeat=tree["action_repeat"],
    )
