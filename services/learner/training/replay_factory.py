"""Construction of the batch source of agents that train from replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedbed.backends.protocol import Backend, Trainer
from seedbed.config.schema import Experiment
from seedbed.replay.client.factory import make_device_replay, make_replay_buffer
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.credentials import Credentials
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.telemetry.replay import ReplaySourceStats

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.learner.training.fused_replay import FusedReplay


def make_replay_source(
    experiment: Experiment,
    spec: SequenceSpec,
    backend: Backend,
    trainer: Trainer,
    stats: ReplaySourceStats,
    credentials: Credentials | None,
) -> ReplaySource | FusedReplay:
    """Build the replay buffer of `learner.replay`, and what draws batches from it.

    Args:
        experiment: All settings of the run.
        spec: Sizes of a sequence.
        backend: Backend of the learner.
        trainer: Compiled training step.
        stats: Statistics that the batch source keeps up to date.
        credentials: Credentials of this process; None: plain text, without tokens.

    Raises:
        SeedbedError: CONFIG: the replay does not fit. REPLAY_FILES: its files cannot be used.
    """
    learner, settings = experiment.learner, experiment.learner.replay
    seed, size = experiment.seed, learner.batch_size
    if settings.storage != "device":
        buffer = make_replay_buffer(settings, spec, credentials)
        return ReplaySource(buffer, settings, size, seed, trainer, backend, stats)
    from seedbed.services.learner.training.fused_replay import FusedReplay

    replay = make_device_replay(settings, spec, backend, seed)
    return FusedReplay(replay, trainer, settings, size, stats)
