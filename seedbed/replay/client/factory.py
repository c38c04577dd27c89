"""Construction of the replay that `learner.replay` describes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.backends.protocol import Backend
from seedbed.config.learner import Replay
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.local_buffer import make_local_buffer
from seedbed.replay.replay_buffer import ReplayBuffer
from seedbed.replay.sequence import SequenceSpec, format_bytes
from seedbed.rpc.credentials import Credentials
from seedbed.runtime.exit_codes import ConfigError

if TYPE_CHECKING:  # imports Keras
    from seedbed.replay.client.device import DeviceReplay

log = logging.getLogger(__name__)


def make_replay_buffer(
    settings: Replay, spec: SequenceSpec, credentials: Credentials | None
) -> ReplayBuffer:
    """Build a replay buffer: empty, or with the contents of its files or shards.

    Args:
        settings: The section `learner.replay`, with `storage: host` or `remote`.
        spec: Sizes of a sequence.
        credentials: Credentials of this process; None: plain text, without tokens.

    Raises:
        SeedbedError: CONFIG: the replay does not fit, or no shard is named. REPLAY_FILES: the
            files cannot be used.
    """
    exponent = settings.priority_exponent
    if settings.storage == "host":
        folder = Path(settings.directory) if settings.directory else None
        subject = "replay in the learner:"
        return make_local_buffer(subject, spec, settings.capacity, exponent, folder)
    if not settings.shards:
        raise ConfigError(
            "learner.replay.storage is remote, and learner.replay.shards names none: start shards "
            "with `seedbed replay`, and list their addresses"
        )
    log.info("replay on %d shards: %s", len(settings.shards), ", ".join(settings.shards))
    timeout_s = settings.shard_timeout_s
    return ShardedReplay(
        spec, settings.shards, exponent, credentials=credentials, timeout_s=timeout_s
    )


def make_device_replay(
    settings: Replay, spec: SequenceSpec, backend: Backend, seed: int
) -> DeviceReplay:
    """Build an empty replay on the device.

    Args:
        settings: The section `learner.replay`, with `storage: device`.
        spec: Sizes of a sequence.
        backend: Backend of the device.
        seed: Seed of the samples.

    Raises:
        SeedbedError: CONFIG: the replay does not fit.
    """
    from seedbed.replay.client.device import DeviceReplay
    from seedbed.replay.client.device_tables import device_bytes

    capacity, device = settings.capacity, backend.devices()[0]
    size, limit = device_bytes(spec, capacity), backend.memory_bytes()
    log.info("replay on %s: %s", device, format_bytes(size))
    if limit and size > limit:
        raise ConfigError(
            f"learner.replay.capacity {capacity} take {format_bytes(size)}, and {device} has "
            f"{format_bytes(limit)}: at most {int(capacity * limit / size)} would fit, less what "
            "the model needs. Lower it, or use storage: host"
        )
    exponent, steps = settings.priority_exponent, settings.transfer_steps
    return DeviceReplay(backend, spec, capacity, exponent, steps, seed)
