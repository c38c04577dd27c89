"""Construction of the replay of `learner.replay`, and of the source that draws batches from it."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.backends.protocol import Backend, Trainer
from seedbed.backends.roles import SHARED
from seedbed.config.schema import Experiment
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.local_buffer import make_local_buffer
from seedbed.replay.replay_buffer import ReplayBuffer
from seedbed.replay.sequence import SequenceSpec, format_bytes
from seedbed.rpc.credentials import Credentials
from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.telemetry.replay import ReplaySourceStats

if TYPE_CHECKING:  # imports Keras
    from seedbed.replay.client.device import DeviceReplay
    from seedbed.services.learner.training.fused_replay import FusedReplay

log = logging.getLogger(__name__)


# Smallest chunk, in bytes, whose frames stay on the device. Of a smaller one, two more programs
# take longer than to send it again in one transfer of many.
_LEAST_KEPT_BYTES = 2**18


def keeps_frames(experiment: Experiment, spec: SequenceSpec, backend: Backend) -> bool:
    """Return whether the frames that inference is sent stay on the device until replay has them.

    Args:
        experiment: All settings of the run.
        spec: Sizes of a sequence.
        backend: Backend of the learner.
    """
    chunk = experiment.actor.envs_per_group * spec.steps * spec.observation.row_bytes
    return (
        experiment.learner.replay.storage == "device"
        and backend.split == SHARED
        and not backend.devices()[0].startswith("cpu")
        and chunk >= _LEAST_KEPT_BYTES
    )


def kept_bytes(experiment: Experiment, spec: SequenceSpec) -> int:
    """Return the memory of all frames that wait on the device to be inserted, in bytes, at most.

    Args:
        experiment: All settings of the run.
        spec: Sizes of a sequence.
    """
    learner = experiment.learner
    # The chunk that each environment fills, the one before that its session hands on, and what
    # waits in the queue and for a transfer.
    queued = learner.queue_batches * learner.batch_size
    staged = min(learner.replay.transfer_steps // spec.steps, learner.replay.capacity // 2)
    sequences = 2 * (learner.inference.slots + 1) + queued + staged
    return sequences * spec.steps * spec.observation.row_bytes


def make_replay_source(
    experiment: Experiment,
    spec: SequenceSpec,
    backend: Backend,
    trainer: Trainer,
    stats: ReplaySourceStats,
    credentials: Credentials,
) -> "ReplaySource | FusedReplay":
    """Build the replay buffer of `learner.replay`, and what draws batches from it.

    Args:
        experiment: All settings of the run.
        spec: Sizes of a sequence.
        backend: Backend of the learner.
        trainer: Compiled training step.
        stats: Statistics that the batch source keeps up to date.
        credentials: Credentials of this process.

    Raises:
        SeedbedError: CONFIG: the replay does not fit, or no shard is named. REPLAY_FILES: its
            files cannot be used.
    """
    learner, settings = experiment.learner, experiment.learner.replay
    seed, size = experiment.seed, learner.host_batch_size
    if settings.storage == "device":
        from seedbed.services.learner.training.fused_replay import FusedReplay

        on_device = _device_replay(experiment, spec, backend)
        return FusedReplay(on_device, settings, size, trainer, stats)
    buffer: ReplayBuffer
    if settings.storage == "remote":
        buffer = _sharded_replay(experiment, spec, credentials)
    else:
        folder = Path(settings.directory) if settings.directory else None
        capacity, exponent = settings.capacity, settings.priority_exponent
        buffer = make_local_buffer("replay in the learner:", spec, capacity, exponent, folder)
    return ReplaySource(buffer, settings, size, seed, trainer, backend, stats)


def _sharded_replay(
    experiment: Experiment, spec: SequenceSpec, credentials: Credentials
) -> ShardedReplay:
    settings = experiment.learner.replay
    if not settings.shards:
        raise ConfigError(
            "learner.replay.storage is remote, and learner.replay.shards names none: start shards "
            "with `seedbed replay`, and list their addresses"
        )
    log.info("replay on %d shards: %s", len(settings.shards), ", ".join(settings.shards))
    exponent, timeout_s = settings.priority_exponent, settings.shard_timeout_s
    return ShardedReplay(
        spec,
        settings.shards,
        exponent,
        bounds=experiment.environment.bounds,
        credentials=credentials,
        timeout_s=timeout_s,
    )


def _device_replay(experiment: Experiment, spec: SequenceSpec, backend: Backend) -> "DeviceReplay":
    from seedbed.replay.client.device import DeviceReplay
    from seedbed.replay.client.device_tables import device_bytes

    settings = experiment.learner.replay
    capacity, device = settings.capacity, backend.devices()[0]
    size, limit = device_bytes(spec, capacity), backend.memory_bytes()
    kept = kept_bytes(experiment, spec) if keeps_frames(experiment, spec, backend) else 0
    more = f", and frames on their way there {format_bytes(kept)}" if kept else ""
    log.info("replay on %s: %s%s", device, format_bytes(size), more)
    if limit and size + kept > limit:
        fit = max(0, int(capacity * (limit - kept) / size))
        raise ConfigError(
            f"learner.replay.capacity {capacity} take {format_bytes(size)}{more}; {device} has "
            f"{format_bytes(limit)}: at most {fit} would fit, less what the model needs. Lower it"
            f"{' or learner.inference.slots' if kept else ''}, or use storage: host"
        )
    exponent, steps = settings.priority_exponent, settings.transfer_steps
    return DeviceReplay(backend, spec, capacity, exponent, steps, experiment.seed)
