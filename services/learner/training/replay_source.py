"""Between sessions and training for agents with replay: blocks in, batches out, priorities back.

The *fed* driver: a home draws sequences, which go over to the device as a batch; training gives
their new priorities back. One thread uses an `ReplaySource`, but for `give_back`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.config.learner import Replay
from seedbed.replay.client.replay_buffer import ReplayBuffer, ReplayStats
from seedbed.replay.rate_limiter import make_rate_limiter
from seedbed.replay.sequence import Sample, SequenceChunk
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import FIRST
from seedbed.telemetry.replay import ReplaySourceStats

log = logging.getLogger(__name__)


class ReplaySource:
    """A home, its rate limiter, and the batches that are on their way.

    Args:
        batch_size: B.
        numbers: what is shown of it; kept up to date.
    """

    def __init__(
        self,
        home: ReplayBuffer,
        settings: Replay,
        batch_size: int,
        seed: int,
        numbers: ReplaySourceStats,
    ) -> None:
        self.home = home
        self.numbers = numbers
        self._batch_size = batch_size
        self._prefetch = settings.prefetch_batches
        self._limiter = make_rate_limiter(settings, batch_size, home.spec)
        self._random = np.random.default_rng(seed)
        self._drawing: deque[Future[Sample]] = deque()
        self._priorities: deque[tuple[NDArray[np.int64], NDArray[np.float32]]] = deque()
        self._since = time.perf_counter()

    def may_insert(self) -> bool:
        """Whether a block may come in; otherwise training, or the home, has to catch up.

        Raises:
            SeedbedError: what the home failed of.
        """
        return self._limiter.may_insert() and self.home.can_insert()

    def insert(self, block: SequenceChunk) -> None:
        """Put a block into the home.

        Raises:
            ValueError: it does not fit.
        """
        self.home.add(block)
        self._limiter.on_insert(self.home.spec.steps * block.environments, self._sampleable())

    def _sampleable(self) -> int:
        if self._limiter.is_warm:
            return 0
        state = self.home.stats()
        never_filled(state, self._limiter.minimum)
        return state.sampleable

    def draw(self) -> None:
        """Ask the home for as many batches as are due and wanted ahead."""
        self.settle()
        while len(self._drawing) < self._prefetch and self._limiter.may_train():
            self._drawing.append(self.home.request_sample(self._random.random(self._batch_size)))
            self._limiter.on_train()

    def take(self, timeout_s: float) -> TrainingBatch | None:
        """The oldest batch that was asked for, on the host; None if it is not there in time.

        Raises:
            SeedbedError: what the home failed of.
        """
        if not self._drawing:
            return None
        try:
            sample = self._drawing[0].result(timeout_s)
        except TimeoutError:
            return None
        except ValueError as error:
            # Shards that lost what they had: to be filled again, as at the start.
            log.warning("replay has become empty, and is filled again: %s", error)
            self._drawing.clear()
            self._limiter.reset()
            return None
        self._drawing.popleft()
        self.numbers.on_sample(sample.age_s)
        return training_batch(sample, self.home.spec.steps, self.home.spec.burn_in)

    @property
    def is_drawing(self) -> bool:
        """Whether a batch is on its way."""
        return bool(self._drawing)

    def give_back(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """New priorities [B] of a batch. Any thread; they reach the home before the next draw."""
        self._priorities.append((keys, priority))

    def settle(self) -> None:
        """Pass on the priorities that were given back."""
        while self._priorities:
            self.home.update_priorities(*self._priorities.popleft())

    def account(self) -> None:
        """Bring the numbers up to date: how the home is, and which side has waited."""
        now = time.perf_counter()
        passed, self._since = now - self._since, now
        if not self._limiter.may_insert():
            self.numbers.insert_waited_s += passed
        elif self._limiter.is_warm and not self._drawing and not self._limiter.may_train():
            self.numbers.sample_waited_s += passed
        self.numbers.buffer = state = self.home.stats()
        self.numbers.filling = state.trouble or self._limiter.warm_up_progress(state.sampleable)


def never_filled(state: ReplayStats, minimum: int) -> None:
    """Refuse to wait for ever.

    Raises:
        SeedbedError: CONFIG: everything was replaced twice, and there are too few sequences still.
    """
    if state.inserted > 3 * state.capacity and state.sampleable < minimum:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"replay is full with {state.size} sequences, and only {state.sampleable} of them can "
            f"be drawn, below learner.replay.min_size {minimum}: the first ones of each "
            "environment's stream cannot. Raise learner.replay.capacity, lower min_size, or "
            "connect fewer environments",
        )


def training_batch(sample: Sample, steps: int, burn_in: int) -> TrainingBatch:
    """A sample as training takes it."""
    arrays: dict[str, NDArray[Any]] = dict(sample.arrays)
    arrays["probability"] = sample.probability.astype(np.float32)
    rows = arrays["reward"].shape[0]
    flags = arrays["flags"][-rows:][burn_in + 1 : burn_in + 1 + steps]
    return TrainingBatch(
        arrays=arrays,
        version=sample.version,
        steps=int(np.count_nonzero((flags & FIRST) == 0)),
        keys=sample.keys,
    )
