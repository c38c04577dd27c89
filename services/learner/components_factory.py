"""Factory of the learner's components for an experiment and a spec. Imports Keras."""

from __future__ import annotations

from typing import Any

from seedbed.agents.inference_step import InferenceStep
from seedbed.agents.protocol import Agent
from seedbed.agents.training_step import on_policy_loss, replay_loss
from seedbed.backends.protocol import Backend
from seedbed.config import Experiment
from seedbed.factory import build_agent, build_optimizer
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.credentials import Credentials
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.training.replay_factory import make_replay_source
from seedbed.services.learner.training.sources import BatchSource, OnPolicySource
from seedbed.services.learner.unrolls.sequences import SequencePlan
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import EnvironmentSpec
from seedbed.telemetry.replay import ReplaySourceStats

# Distance between the seeds of two learners, which begin with the same parameters, and act apart.
LEARNER_SEED_STRIDE = 1_000_003


def build_components(
    experiment: Experiment,
    spec: EnvironmentSpec,
    backend: Backend,
    stats: ReplaySourceStats | None = None,
    credentials: Credentials | None = None,
    rank: int = 0,
) -> LearnerComponents:
    """Build agent, trainer, inference and the batch source.

    Args:
        experiment: the experiment.
        spec: what the environment shows and takes.
        backend: the backend of this process.
        stats: the statistics of the replay, which its source keeps up to date.
        credentials: credentials of this process; None: plain text, without tokens.
        rank: number of this learner, from 0.

    Raises:
        SeedbedError: CONFIG: a setting does not fit the environment or this machine.
    """
    learner = experiment.learner
    agent: Any = build_agent(experiment, spec)
    unroll = _sequence_plan(experiment, agent, spec) or _unroll_spec(experiment, agent, spec)
    frames = _frames_per_update(experiment, spec, isinstance(unroll, SequencePlan))
    if isinstance(unroll, SequencePlan):
        exponent = learner.replay.importance_sampling_exponent
        loss = replay_loss(agent, learner.frame_stack, exponent)
    else:
        loss = on_policy_loss(agent, learner.frame_stack)
    optimizer, clip = build_optimizer(experiment, frames), learner.optimizer.max_gradient_norm
    trainer = backend.trainer(agent.model, optimizer, loss, clip, agent.target_update_period)
    source: BatchSource = OnPolicySource(trainer, backend, learner.batch_size)
    if isinstance(unroll, SequencePlan):
        stats = stats or ReplaySourceStats()
        source = make_replay_source(experiment, unroll.spec, backend, trainer, stats, credentials)
    slots, seed = learner.inference.slots, experiment.seed + LEARNER_SEED_STRIDE * rank
    most = learner.inference.max_batch_envs
    inference = InferenceStep(backend, agent, spec, learner.frame_stack, slots, most, seed)
    return LearnerComponents(spec, unroll, backend, agent, trainer, inference, source)


def _sequence_plan(
    experiment: Experiment, agent: Any, spec: EnvironmentSpec
) -> SequencePlan | None:
    """Return what sessions write for an agent with replay, or None for an agent without."""
    if not agent.trains_from_replay:
        return None
    sequence = SequenceSpec(
        observation=spec.observation,
        steps=experiment.learner.unroll_length,
        burn_in=agent.burn_in,
        lookahead=agent.lookahead,
        frame_stack=experiment.learner.frame_stack,
        state_size=agent.body.state_size,
        environment=spec.name,
        actions=spec.actions,
    )
    return SequencePlan(sequence, agent.behaviour, agent.initial_priority)


def _unroll_spec(experiment: Experiment, agent: Agent, spec: EnvironmentSpec) -> UnrollSpec:
    return UnrollSpec(
        observation=spec.observation,
        unroll_length=experiment.learner.unroll_length,
        frame_stack=experiment.learner.frame_stack,
        state_size=agent.body.state_size,
        behaviour=agent.behaviour,
    )


def _frames_per_update(experiment: Experiment, spec: EnvironmentSpec, with_replay: bool) -> float:
    """Return the frames that come in for each update, by which schedules count."""
    learner = experiment.learner
    frames = learner.unroll_length * learner.batch_size * spec.action_repeat
    frames_per_update = frames / (learner.replay.ratio if with_replay else learner.epochs_per_batch)
    # The other learners bring in as many in the meantime.
    return frames_per_update * experiment.gossip.replicas
