"""Construction of the replay of `learner.replay`, and of the source that draws batches from it."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from seedbed.backends.protocol import Backend
from seedbed.backends.roles import SHARED
from seedbed.backends.trainer import Trainer
from seedbed.config.schema import Experiment
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.local_buffer import make_local_buffer
from seedbed.replay.replay_buffer import ReplayBuffer
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.credentials import Credentials
from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.learner.device_memory import Need
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.telemetry.replay import ReplaySourceStats

if TYPE_CHECKING:  # imports Keras
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


def device_needs(experiment: Experiment, spec: SequenceSpec, backend: Backend) -> list[Need]:
    """Return what the replay needs on the device that trains.

    Args:
        experiment: All settings of the run.
        spec: Sizes of a sequence.
        backend: Backend of the learner.
    """
    from seedbed.replay.client.device_tables import device_bytes

    learner, capacity = experiment.learner, experiment.learner.replay.capacity
    if learner.replay.storage != "device":
        return []
    size = device_bytes(spec, capacity)
    needs = [Need("replay", size, "learner.replay.capacity", capacity, ", or use storage: host")]
    if keeps_frames(experiment, spec, backend):
        # A chunk of each environment, and what waits in the queue and to be staged.
        slots, queued = learner.inference.slots, experiment.queue_batches * learner.batch_size
        staged = min(learner.replay.transfer_steps // spec.steps, capacity // 2)
        waiting = (slots + queued + staged) * spec.steps * spec.observation.row_bytes
        needs.append(Need("frames on their way to it", waiting, "learner.inference.slots"))
    return needs


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
        from seedbed.replay.client.device import DeviceReplay
        from seedbed.services.learner.training.fused_replay import FusedReplay

        on_device = DeviceReplay(
            backend,
            spec,
            settings.capacity,
            settings.priority_exponent,
            settings.transfer_steps,
            seed,
        )
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
