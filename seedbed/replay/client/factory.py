"""Construction of the replay buffer that `learner.replay` describes."""

from __future__ import annotations

import logging
from pathlib import Path

from seedbed.backends.protocol import Backend
from seedbed.config.learner import Replay
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.client.replay_buffer import HostReplay, ReplayBuffer
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.mapped_files import files_bytes, open_buffer
from seedbed.replay.sequence import SequenceSpec, format_bytes
from seedbed.replay.sizes import check_memory, estimate, memory_bytes
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)


def make_replay_buffer(
    settings: Replay, spec: SequenceSpec, backend: Backend, *, seed: int = 0, tls: Tls | None = None
) -> ReplayBuffer:
    """Build a replay buffer: empty, or with the contents of its files or shards.

    Args:
        settings: The section `learner.replay`.
        spec: Sizes of a sequence.
        backend: Backend of the device, for `storage: device`.
        seed: Seed of the samples of a fused step, for `storage: device`.
        tls: Shards need a certificate of this authority, for `storage: remote`.

    Raises:
        SeedbedError: CONFIG: the replay does not fit, or no shard is named. REPLAY_FILES: the
            files cannot be used.
    """
    if settings.storage == "device":
        return _on_device(settings, spec, backend, seed)
    return (
        _on_shards(settings, spec, tls) if settings.storage == "remote" else _host(settings, spec)
    )


def _host(settings: Replay, spec: SequenceSpec) -> ReplayBuffer:
    directory = Path(settings.directory) if settings.directory else None
    capacity, exponent = settings.capacity, settings.priority_exponent
    log.info("replay in the learner: %s", estimate(spec, capacity, directory))
    check_memory(spec, capacity, directory)
    if directory is None:
        size = memory_bytes(spec, capacity, directory)
        return HostReplay(SequenceBuffer(spec, capacity, exponent), size)
    buffer = open_buffer(directory, spec, capacity, exponent)
    return HostReplay(buffer, files_bytes(spec, capacity))


def _on_shards(settings: Replay, spec: SequenceSpec, tls: Tls | None) -> ReplayBuffer:
    if not settings.shards:
        raise SeedbedError(
            ExitCode.CONFIG,
            "learner.replay.storage is remote, and learner.replay.shards names none: start shards "
            "with `seedbed replay`, and list their addresses",
        )
    log.info("replay on %d shards: %s", len(settings.shards), ", ".join(settings.shards))
    exponent, timeout_s = settings.priority_exponent, settings.shard_timeout_s
    return ShardedReplay(spec, settings.shards, exponent, tls=tls, timeout_s=timeout_s)


def _on_device(settings: Replay, spec: SequenceSpec, backend: Backend, seed: int) -> ReplayBuffer:
    # Imports Keras.
    from seedbed.replay.client.device import DeviceReplay
    from seedbed.replay.client.device_tables import device_bytes

    capacity, device = settings.capacity, backend.devices()[0]
    size, limit = device_bytes(spec, capacity), backend.memory_bytes()
    log.info("replay on %s: %s", device, format_bytes(size))
    if limit and size > limit:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"learner.replay.capacity {capacity} take {format_bytes(size)}, and {device} has "
            f"{format_bytes(limit)}: at most {int(capacity * limit / size)} would fit, less what "
            "the model needs. Lower it, or use storage: host",
        )
    exponent, steps = settings.priority_exponent, settings.transfer_steps
    return DeviceReplay(backend, spec, capacity, exponent, steps, seed)
