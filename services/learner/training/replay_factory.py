"""From `learner.replay` to a home and its driver: says what it takes, and whether it fits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.backends.protocol import Backend, Trainer
from seedbed.config.learner import Replay
from seedbed.config.schema import Experiment
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.client.replay_buffer import HostReplay, ReplayBuffer
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.mapped_files import files_bytes, open_buffer
from seedbed.replay.sequence import SequenceSpec, format_bytes
from seedbed.replay.sizes import check_memory, estimate, memory_bytes
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.telemetry.replay import ReplaySourceStats

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.learner.training.fused_replay import FusedReplay

log = logging.getLogger(__name__)


def make_experience(
    experiment: Experiment,
    spec: SequenceSpec,
    backend: Backend,
    trainer: Trainer,
    numbers: ReplaySourceStats,
    tls: Tls | None,
) -> ReplaySource | FusedReplay:
    """The home of `learner.replay` with its driver: empty, or with what its files or shards hold.

    Args:
        tls: replay shards need a certificate of its authority.

    Raises:
        SeedbedError: CONFIG, with both numbers, where it cannot fit; REPLAY_FILES.
    """
    learner = experiment.learner
    settings = learner.replay
    if settings.storage == "device":
        return _on_device(experiment, spec, backend, trainer, numbers)
    home = _shards(settings, spec, tls) if settings.storage == "remote" else _host(settings, spec)
    return ReplaySource(
        home, settings, learner.batch_size, experiment.seed, trainer, backend, numbers
    )


def _host(settings: Replay, spec: SequenceSpec) -> ReplayBuffer:
    directory = Path(settings.directory) if settings.directory else None
    capacity, exponent = settings.capacity, settings.priority_exponent
    log.info("replay in the learner: %s", estimate(spec, capacity, directory))
    check_memory(spec, capacity, directory)
    if directory is not None:
        return HostReplay(open_buffer(directory, spec, capacity, exponent),
                        files_bytes(spec, capacity))  # fmt: skip
    return HostReplay(
        SequenceBuffer(spec, capacity, exponent), memory_bytes(spec, capacity, directory)
    )


def _shards(settings: Replay, spec: SequenceSpec, tls: Tls | None) -> ReplayBuffer:
    if not settings.shards:
        raise SeedbedError(
            ExitCode.CONFIG,
            "learner.replay.storage is remote, and learner.replay.shards names none: start shards "
            "with `seedbed replay`, and list their addresses",
        )
    log.info("replay on %d shards: %s", len(settings.shards), ", ".join(settings.shards))
    return ShardedReplay(
        spec,
        settings.shards,
        settings.priority_exponent,
        tls=tls,
        timeout_s=settings.shard_timeout_s,
    )


def _on_device(
    experiment: Experiment,
    spec: SequenceSpec,
    backend: Backend,
    trainer: Trainer,
    numbers: ReplaySourceStats,
) -> FusedReplay:
    from seedbed.replay.client.device import DeviceReplay, device_bytes
    from seedbed.services.learner.training.fused_replay import FusedReplay

    learner = experiment.learner
    settings = learner.replay
    size, limit = device_bytes(spec, settings.capacity), backend.memory_bytes()
    log.info("replay on %s: %s", backend.devices()[0], format_bytes(size))
    if limit and size > limit:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"learner.replay.capacity {settings.capacity} take {format_bytes(size)}, and "
            f"{backend.devices()[0]} has {format_bytes(limit)}: at most "
            f"{int(settings.capacity * limit / size)} would fit, less what the model needs. Lower "
            "it, or use storage: host",
        )
    home = DeviceReplay(
        backend,
        spec,
        settings.capacity,
        settings.priority_exponent,
        settings.transfer_steps,
        experiment.seed,
    )
    return FusedReplay(home, trainer, backend, settings, learner.batch_size, numbers)
