"""Replay source: chunks in, batches out, priorities back. The buffer may be local or remote."""

import logging
import math
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.config.learner import Replay
from seedbed.replay.rate_limiter import RateLimiter
from seedbed.replay.replay_buffer import ReplayBuffer, ReplayStats
from seedbed.replay.sequence import Sample, SequenceChunk
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner.training.sources import TURN_S, PrefetchedSource
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import FIRST
from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.replay import ReplaySourceStats

log = logging.getLogger(__name__)


class ReplaySource(PrefetchedSource):
    """Source that samples batches from a replay buffer, within the limits of the replay ratio.

    Args:
        buffer: the replay buffer.
        settings: `learner.replay` of the experiment.
        batch_size: B, sequences of a batch.
        seed: seed of the samples.
        trainer: makes the updates.
        backend: copies batches to the device.
        stats: the statistics of the replay, kept up to date.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        settings: Replay,
        batch_size: int,
        seed: int,
        trainer: Trainer,
        backend: Backend,
        stats: ReplaySourceStats,
    ) -> None:
        super().__init__(trainer, backend)
        self.buffer = buffer
        self.stats = stats
        self._batch_size = batch_size
        self._prefetch_batches = settings.prefetch_batches
        self._limiter = RateLimiter(settings, batch_size * buffer.spec.steps)
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self._samples: deque[Future[Sample]] = deque()
        self._priorities: deque[tuple[NDArray[np.int64], NDArray[np.float32]]] = deque()
        # Keys of the newest skipped updates.
        self._excluded: deque[frozenset[int]] = deque(maxlen=8)

    @override
    def sampler_state(self) -> dict[str, Any]:
        with self._random.bit_generator.lock:
            return dict(self._random.bit_generator.state)

    @override
    def resume_sampler(self, state: dict[str, Any] | None, updates: int) -> None:
        if state is None:  # of another source, such as a replay on the device
            self._random = np.random.default_rng((self._seed, updates))
        else:
            self._random.bit_generator.state = state

    @override
    def may_prefetch(self) -> bool:
        return bool(self._samples)

    @override
    def wait_until_insertable(self, busy: BusyClock, stopping: threading.Event) -> bool:
        if self._limiter.may_insert() and self.buffer.can_insert():
            return True
        if not self._samples:
            with busy.blocked("replay takes nothing in"):
                stopping.wait(TURN_S)
        return False

    @override
    def insert(self, unroll: SequenceChunk) -> int:
        """Insert a chunk into the buffer, and return its steps.

        Raises:
            ValueError: the chunk does not fit the buffer.
        """
        self.buffer.add(unroll)
        sampleable = 0
        if not self._limiter.is_warm:
            state = self.buffer.stats()
            check_fills(state, self._limiter.min_size)
            sampleable = state.sampleable
        self._limiter.on_insert(self.buffer.spec.steps * unroll.environments, sampleable)
        return unroll.steps

    @override
    def prepare(self, timeout_s: float) -> TrainingBatch | None:
        self._request_samples()
        sample = self._take_sample(timeout_s)
        self.stats.record(self.buffer.stats(), self._limiter, samples_ahead=len(self._samples))
        if sample is None:
            return None
        spec = self.buffer.spec
        return self.to_device(training_batch(sample, spec.steps, spec.burn_in))

    def _request_samples(self) -> None:
        """Request as many samples as are due and wanted ahead."""
        # Priorities go first, so that the samples are drawn by the newest ones.
        while self._priorities:
            self.buffer.update_priorities(*self._priorities.popleft())
        while len(self._samples) < self._prefetch_batches and self._limiter.may_train():
            self._samples.append(self.buffer.request_sample(self._random.random(self._batch_size)))
            self._limiter.on_train()

    def _take_sample(self, timeout_s: float) -> Sample | None:
        """Return the oldest sample that was requested, or None if it does not come in time."""
        if not self._samples:
            return None
        try:
            sample = self._samples[0].result(timeout_s)
        except TimeoutError:
            return None
        except ValueError as error:
            # The shards have lost their sequences: fill them again, as at the start.
            log.warning("replay has become empty, and is filled again: %s", error)
            self._samples.clear()
            self._limiter.reset()
            return None
        self._samples.popleft()
        if self._is_excluded(sample.keys):
            return None
        self.stats.on_sample(sample.age_s)
        return sample

    @override
    def on_trained(self, batch: TrainingBatch, numbers: Mapping[str, NDArray[Any]]) -> None:
        """Keep the new priorities [B] for the buffer, which gets them before its next sample.

        The sequences of a skipped update get priority 0, with which they are never drawn again.
        """
        assert batch.keys is not None
        priority = numbers["priority"]
        applied = math.isfinite(numbers["gradient_norm"])
        priority = np.where(applied & np.isfinite(priority), priority, np.float32(0))
        self._priorities.append((batch.keys, priority))
        if not applied:
            self._excluded.append(frozenset(batch.keys.tolist()))

    def _is_excluded(self, keys: NDArray[np.int64]) -> bool:
        """Return whether a batch, drawn before an update was skipped, has its sequences, too."""
        return any(not excluded.isdisjoint(keys.tolist()) for excluded in tuple(self._excluded))

    @override
    def next_batch(self, timeout_s: float) -> TrainingBatch | None:
        batch = super().next_batch(timeout_s)
        if batch is None or batch.keys is None or self._is_excluded(batch.keys):
            return None
        return batch

    @override
    def pending_steps(self) -> int:
        # Frames of replay are accounted for when they are inserted, and not again by each sample.
        return 0

    @override
    def close(self) -> None:
        while self._priorities:
            self.buffer.update_priorities(*self._priorities.popleft())
        self.buffer.close()


def check_fills(state: ReplayStats, min_size: int) -> None:
    """Refuse a replay that never gets `min_size` sequences that can be sampled.

    Args:
        state: the state of the replay buffer.
        min_size: sequences that must be sampleable before training begins.

    Raises:
        SeedbedError: CONFIG: every sequence was replaced twice, and too few can be sampled.
    """
    if state.inserted > 3 * state.capacity and state.sampleable < min_size:
        raise SeedbedError(
            ExitCode.CONFIG,
            f"replay is full with {state.size} sequences, and only {state.sampleable} of them can "
            f"be drawn, below learner.replay.min_size {min_size}: the first ones of each "
            "environment's stream cannot. Raise learner.replay.capacity, lower min_size, or "
            "connect fewer environments",
        )


def training_batch(sample: Sample, steps: int, burn_in: int) -> TrainingBatch:
    """Make a training batch of a sample.

    Args:
        sample: B sequences.
        steps: T, trained transitions of a sequence.
        burn_in: transitions before the trained ones.
    """
    arrays: dict[str, NDArray[Any]] = dict(sample.arrays)
    arrays["probability"] = sample.probability.astype(np.float32)
    timesteps = arrays["reward"].shape[0]
    # [T, B]
    flags = arrays["flags"][-timesteps:][burn_in + 1 : burn_in + 1 + steps]
    return TrainingBatch(
        arrays=arrays,
        version=sample.version,
        steps=int(np.count_nonzero((flags & FIRST) == 0)),
        keys=sample.keys,
    )
