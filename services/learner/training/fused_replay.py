"""Fused replay source: sampling, update and new priorities in one compiled call on the device."""

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.backends.trainer import Trainer
from seedbed.config.learner import Replay
from seedbed.gossip.exchange import ParameterExchange
from seedbed.replay.client.device import DeviceReplay
from seedbed.replay.rate_limiter import RateLimiter
from seedbed.replay.sequence import SequenceChunk
from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.training.replay_source import check_fills
from seedbed.services.learner.training.sources import BatchSource
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.replay import ReplaySourceStats


class FusedReplay(BatchSource):
    """Source of batches that never leave the device. Only the training thread uses the device.

    Args:
        buffer: the replay buffer on the device.
        settings: `learner.replay` of the experiment.
        batch_size: B, sequences of a batch.
        trainer: makes the updates.
        stats: the statistics of the replay, kept up to date.
    """

    def __init__(
        self,
        buffer: DeviceReplay,
        settings: Replay,
        batch_size: int,
        trainer: Trainer,
        stats: ReplaySourceStats,
    ) -> None:
        self.buffer = buffer
        self.stats = stats
        self._batch_size = batch_size
        self._limiter = RateLimiter(settings, batch_size * buffer.spec.steps)
        self._arrived: deque[SequenceChunk] = deque()
        self._changed = threading.Condition()
        self._items: Any = None  # of the newest batch, on the device
        self._update: Callable[[], dict[str, Any]] = trainer.fuse(
            buffer.tables, partial(buffer.draw, batch_size=batch_size), buffer.set_priorities
        )

    @override
    def resume_sampler(self, state: dict[str, Any] | None, updates: int) -> None:
        self.buffer.skip_draws(updates)  # an update is a draw, which numbers it

    # --- prefetch thread -------------------------------------------------------------------

    @override
    def wait_until_insertable(self, busy: BusyClock, stopping: threading.Event) -> bool:
        with busy.blocked("training is busy"), self._changed:
            return self._changed.wait_for(self._limiter.may_insert, POLL_S)

    @override
    def insert(self, unroll: SequenceChunk) -> int:
        with self._changed:
            self._arrived.append(unroll)
            # A chunk that has not arrived counts. Otherwise a whole burst would be let in.
            self._limiter.on_insert(self.buffer.spec.steps * unroll.environments, 0)
            self._changed.notify_all()
        return unroll.steps

    # --- training thread -------------------------------------------------------------------

    @override
    def next_batch(self, timeout_s: float) -> TrainingBatch | None:
        """Write to the device what has arrived, and return an empty batch if an update is due."""
        with self._changed:
            if not self._arrived and not self._limiter.may_train():
                self._changed.wait(timeout_s)
            arrived, self._arrived = self._arrived, deque()
        for chunk in arrived:
            self.buffer.add(chunk)
        if not self._limiter.is_warm:
            check_fills(self.buffer.stats(), self._limiter.min_size)
        with self._changed:
            self._limiter.on_insert(0, self.buffer.ring.sampleable)
            self.stats.record(self.buffer.stats(), self._limiter)
            due = self._limiter.may_train()
        return TrainingBatch({}, np.zeros(self._batch_size), 0) if due else None

    @override
    def train_step(
        self, batch: TrainingBatch, exchange: ParameterExchange | None
    ) -> dict[str, Any]:
        outputs = self.step()
        if exchange is not None:
            exchange.after_update()
        self._items = outputs.pop("items")
        return outputs

    def step(self) -> dict[str, Any]:
        """Make one update, and return the outputs of the loss, on the device."""
        outputs = self._update()
        with self._changed:
            self._limiter.on_train()
            self._changed.notify_all()
        return outputs

    @override
    def on_trained(self, batch: TrainingBatch, numbers: Mapping[str, NDArray[Any]]) -> None:
        batch.version = np.asarray(numbers["version"], np.float64)
        self.stats.on_sample(self.buffer.age_s(numbers["time"]))
        if not math.isfinite(numbers["gradient_norm"]):
            return  # the compiled call has set the priorities to 0
        steps = self.buffer.spec.steps * self._batch_size
        batch.steps = round(steps * float(numbers.get("unmasked", 1.0)))

    @override
    def host_arrays(self, batch: TrainingBatch) -> dict[str, NDArray[Any]]:
        return self.buffer.read(self._items)

    @override
    def pending_steps(self) -> int:
        return 0
