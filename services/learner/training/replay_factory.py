"""From `learner.replay` to a home and its driver: says what it takes, and whether it fits."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.backends.protocol import Backend, Trainer
from seedbed.config.learner import Replay
from seedbed.config.schema import Experiment
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.client.replay_buffer import Home, HostHome
from seedbed.replay.client.sharded import ServiceHome
from seedbed.replay.mapped_files import files_bytes, gib, open_buffer
from seedbed.replay.sequence import SequenceSpec
from seedbed.replay.sizes import check_memory, estimate, memory_bytes
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner.training.replay_source import Experience
from seedbed.telemetry.replay import ReplayNumbers

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.learner.training.fused_replay import FusedExperience

log = logging.getLogger("seedbed.learner")


def make_experience(
    experiment: Experiment,
    spec: SequenceSpec,
    backend: Backend,
    trainer: Trainer,
    numbers: ReplayNumbers,
    tls: Tls | None,
) -> Experience | FusedExperience:
    """The home of `learner.replay` with its driver: empty, or with what its files or shards hold.

    Args:
        tls: replay shards need a certificate of its authority.

    Raises:
        SeedbedError: CONFIG, with both numbers, where it cannot fit; REPLAY_FILES.
    """
    learner = experiment.learner
    settings = learner.replay
    if settings.home == "device":
        return _on_device(experiment, spec, backend, trainer, numbers)
    home = _shards(settings, spec, tls) if settings.home == "service" else _host(settings, spec)
    return Experience(home, settings, learner.batch_size, experiment.seed, numbers)


def _host(settings: Replay, spec: SequenceSpec) -> Home:
    directory = Path(settings.directory) if settings.directory else None
    capacity, exponent = settings.sequences, settings.priority_exponent
    log.info("replay in the learner: %s", estimate(spec, capacity, directory))
    check_memory(spec, capacity, directory)
    if directory is not None:
        return HostHome(open_buffer(directory, spec, capacity, exponent),
                        files_bytes(spec, capacity))  # fmt: skip
    return HostHome(
        SequenceBuffer(spec, capacity, exponent), memory_bytes(spec, capacity, directory)
    )


def _shards(settings: Replay, spec: SequenceSpec, tls: Tls | None) -> Home:
    if not settings.shards:
        raise SeedbedError(
            ExitCode.CONFIG,
            "learner.replay.home is service, and learner.replay.shards names none: start shards "
            "with `seedbed replay`, and list their addresses",
        )
    log.info("replay on %d shards: %s", len(settings.shards), ", ".join(settings.shards))
    return ServiceHome(
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
    numbers: ReplayNumbers,
) -> FusedExperience:
    from seedbed.replay.client.device import DeviceHome, device_bytes
    from seedbed.services.learner.training.fused_replay import FusedExperience

    learner = experiment.learner
    settings = learner.replay
    size, limit = device_bytes(spec, settings.sequences), backend.memory_bytes()
    log.info("replay on %s: %s", backend.devices()[0], gib(size))
    if limit and size > limit:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"learner.replay.sequences {settings.sequences} take {gib(size)}, and "
            f"{backend.devices()[0]} has {gib(limit)}: at most "
            f"{int(settings.sequences * limit / size)} would fit, less what the model needs. Lower "
            "it, or use home: host",
        )
    home = DeviceHome(
        backend,
        spec,
        settings.sequences,
        settings.priority_exponent,
        settings.update_size,
        experiment.seed,
    )
    return FusedExperience(home, trainer, backend, settings, learner.batch_size, numbers)
