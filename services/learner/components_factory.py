"""Factory of the learner's components for an experiment and a spec. Imports Keras."""

from dataclasses import replace
from typing import Any, NamedTuple

from seedbed.agents.inference_step import InferenceStep, table_specs
from seedbed.agents.training_step import on_policy_loss, replay_loss
from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.config import Experiment
from seedbed.factory import build_agent
from seedbed.optimizers import build_optimizer, learners_per_update
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.device_memory import Need, check_memory
from seedbed.services.learner.training import replay_factory
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
    credentials: Credentials = PLAIN,
    rank: int = 0,
) -> LearnerComponents:
    """Build agent, trainer, inference and the batch source.

    Args:
        experiment: the experiment.
        spec: what the environment shows and takes.
        backend: the backend of this process.
        stats: the statistics of the replay, which its source keeps up to date.
        credentials: credentials of this process.
        rank: number of this learner, from 0.

    Raises:
        SeedbedError: CONFIG: a setting does not fit the environment or this machine, or the
            replay. REPLAY_FILES: the files of the replay cannot be used.
    """
    learner = experiment.learner
    agent, unroll, trainer, _ = build_trainer(experiment, spec, backend)
    source: BatchSource
    kept_steps, slots = 0, learner.inference.slots
    size = trainer.state_bytes()
    training = [Need("parameters and optimizer", size, "the network (learner.network_options)")]
    if isinstance(unroll, SequencePlan):
        if replay_factory.keeps_frames(experiment, unroll.spec, backend):
            unroll, kept_steps = replace(unroll, keeps_frames=True), unroll.spec.steps
        training += replay_factory.device_needs(experiment, unroll.spec, backend)
    tables = []
    if learner.inference.location == "learner":
        specs = table_specs(agent, spec, learner.frame_stack, slots, kept_steps).values()
        size = sum(rows * array.row_bytes for rows, array in specs)
        tables = [Need("tables of the slots", size, "learner.inference.slots", slots)]
    check_memory(backend, tables, training)
    seed = experiment.seed + LEARNER_SEED_STRIDE * rank
    if isinstance(unroll, SequencePlan):
        source = replay_factory.make_replay_source(
            experiment, unroll.spec, backend, trainer, stats or ReplaySourceStats(), credentials
        )
    else:
        source = OnPolicySource(
            trainer,
            backend,
            learner.host_batch_size,
            unroll,
            experiment.passes,
            experiment.minibatches,
            seed,
        )
    most = learner.inference.max_batch_envs
    seeds: list[Any] = [seed, *((seed, acting) for acting in range(1, backend.split.inference))]
    if learner.inference.location == "actor":
        seeds = []
    inference = [
        InferenceStep(
            backend,
            agent,
            spec,
            learner.frame_stack,
            slots,
            most,
            each,
            acting=acting,
            kept_steps=kept_steps,
        )
        for acting, each in enumerate(seeds)
    ]
    return LearnerComponents(spec, unroll, backend, agent, trainer, inference, source)


class BuiltTrainer(NamedTuple):
    """A trainer, and what it trains.

    Attributes:
        agent: the agent.
        unroll: spec of what it trains on.
        trainer: the trainer.
        updates_per_batch: updates for each batch of new steps.
    """

    agent: Any
    unroll: UnrollSpec | SequencePlan
    trainer: Trainer
    updates_per_batch: float


def build_trainer(experiment: Experiment, spec: EnvironmentSpec, backend: Backend) -> BuiltTrainer:
    """Build the agent and its trainer.

    Raises:
        SeedbedError: CONFIG: a setting does not fit the environment.
    """
    learner, size = experiment.learner, experiment.learner.batch_size
    agent: Any = build_agent(experiment, spec)
    try:
        experiment.check_inference(agent.trains_from_replay or agent.synchronous)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    agent.body.row_parts = backend.row_parts
    agent.body.batch_major = backend.split.training * learner.hosts > 1
    unroll: UnrollSpec | SequencePlan
    if agent.trains_from_replay:
        unroll = _sequence_plan(experiment, agent, spec)
        exponent = learner.replay.importance_sampling_exponent
        loss = replay_loss(agent, learner.frame_stack, exponent)
        updates_per_batch = learner.replay.ratio
    else:
        unroll = UnrollSpec(
            observation=spec.observation,
            unroll_length=learner.unroll_length,
            frame_stack=learner.frame_stack,
            state_size=agent.body.state_size,
            behaviour=agent.behaviour,
            action=spec.action.array,
        )
        loss = on_policy_loss(agent, learner.frame_stack)
        updates_per_batch = experiment.passes * experiment.minibatches
    # Schedules count by the frames that come in for each update. The other learners bring in as
    # many in the meantime.
    batch_frames = learner.unroll_length * size * spec.action_repeat
    frames_per_update = batch_frames / updates_per_batch * learners_per_update(experiment)
    if agent.body.normalizer is not None:
        counted = round(experiment.normalization_frames / frames_per_update)
        agent.body.normalizer.updates = max(1, counted)
    optimizer = build_optimizer(experiment, frames_per_update)
    clip = learner.optimizer.max_gradient_norm
    trainer = backend.trainer(agent.model, optimizer, loss, clip, agent.target_update_period)
    return BuiltTrainer(agent, unroll, trainer, updates_per_batch)


def _sequence_plan(experiment: Experiment, agent: Any, spec: EnvironmentSpec) -> SequencePlan:
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
