"""The *fused* driver: sampling, update and new priorities in one compiled call on the device."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from seedbed.backends.protocol import Backend, Trainer
from seedbed.config.learner import Replay
from seedbed.replay.client.device import DeviceReplay
from seedbed.replay.rate_limiter import make_rate_limiter
from seedbed.replay.sequence import SequenceChunk
from seedbed.services.learner.training.replay_source import never_filled
from seedbed.telemetry.replay import ReplaySourceStats


class FusedReplay:
    """A device home. One thread brings blocks; the training thread alone touches the device.

    Args:
        batch_size: B.
        numbers: what is shown of it; kept up to date.
    """

    def __init__(
        self,
        home: DeviceReplay,
        trainer: Trainer,
        backend: Backend,
        settings: Replay,
        batch_size: int,
        numbers: ReplaySourceStats,
    ) -> None:
        self.home = home
        self.numbers = numbers
        self.batch_size = batch_size
        self._backend = backend
        self._limiter = make_rate_limiter(settings, batch_size, home.spec)
        self._arrived: deque[SequenceChunk] = deque()
        self._changed = threading.Condition()
        self._since = time.perf_counter()
        self._update: Callable[[], dict[str, Any]] = trainer.fuse(
            home.tables, partial(home.draw, batch_size=batch_size), home.settle
        )

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether a block may come in, at the latest after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(self._limiter.may_insert, timeout_s)

    def insert(self, block: SequenceChunk) -> None:
        """Bring a block; the training thread takes it over before its next step."""
        with self._changed:
            self._arrived.append(block)
            # What is on its way counts: or a burst would be let in before any of it has arrived.
            self._limiter.on_insert(self.home.spec.steps * block.environments, 0)
            self._changed.notify_all()

    def wait_for_batch(self, timeout_s: float) -> bool:
        """Take over what has arrived; whether a step is due, at the latest after `timeout_s`."""
        with self._changed:
            if not self._arrived and not self._limiter.may_train():
                self._changed.wait(timeout_s)
            arrived, self._arrived = self._arrived, deque()
        for block in arrived:
            self.home.add(block)
        if not self._limiter.is_warm:
            never_filled(self.home.stats(), self._limiter.minimum)
        with self._changed:
            self._limiter.on_insert(0, self.home.ring.sampleable)
            self._account()
            return self._limiter.may_train()

    def step(self) -> dict[str, Any]:
        """One update. Training thread only. Returns the loss's outputs, on the device."""
        outputs = self._update()
        with self._changed:
            self._limiter.on_train()
            self._changed.notify_all()
        age_s = self.home.age_s(self._backend.to_host(outputs.pop("time")))
        self.numbers.on_sample(age_s)
        return outputs

    def _account(self) -> None:
        now = time.perf_counter()
        passed, self._since = now - self._since, now
        if not self._limiter.may_insert():
            self.numbers.insert_waited_s += passed
        elif self._limiter.is_warm and not self._limiter.may_train():
            self.numbers.sample_waited_s += passed
        self.numbers.buffer = state = self.home.stats()
        self.numbers.filling = self._limiter.warm_up_progress(state.sampleable)
