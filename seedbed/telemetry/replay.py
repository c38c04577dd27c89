"""Counts of a learner's replay."""

import time
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.rate_limiter import RateLimiter
from seedbed.replay.replay_buffer import ReplayStats
from seedbed.runtime.metrics import Histogram, Metric, counter, documented, gauge, histogram
from seedbed.telemetry.windows import RecentValues

AGE_BOUNDS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_200, 3_600, 7_200, 14_400, 43_200, 86_400)


class ReplaySourceStats:
    """Written by the thread that draws from the replay buffer, read by telemetry.

    Attributes:
        buffer: Newest statistics of the replay buffer; None without one.
        buffer.size: Sequences that are stored. NaN without a replay.
        buffer.sampleable: Sequences that can be drawn. NaN without a replay.
        buffer.capacity: Sequences that the replay can store. NaN without a replay.
        buffer.bytes: Bytes that a full replay takes. NaN without a replay.
        buffer.inserted: Sequences inserted by this process.
        buffer.stale_updates: Priorities that came for sequences already replaced.
        buffer.refused: Sequences of shards whose numbers are not allowed, and which were not used.
        buffer.shards: Replay shards, 0 within the learner. NaN without a replay.
        buffer.healthy_shards: Replay shards that answer. NaN without a replay.
        filling: How far the buffer is from the size at which training may begin, in words.
        sampled: Sequences drawn by this process.
        age_s: Seconds between the insertion of a sequence and a draw.
        waited_s: Seconds in which the replay ratio held a side up: `insert` is the actors, ahead of
            training, `sample` is training, ahead of the actors.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_replay_sequences", "buffer.size"),
        gauge("seedbed_replay_sampleable", "buffer.sampleable"),
        gauge("seedbed_replay_capacity", "buffer.capacity"),
        gauge("seedbed_replay_bytes", "buffer.bytes"),
        counter("seedbed_replay_inserted_sequences_total", "buffer.inserted"),
        counter("seedbed_replay_sampled_sequences_total", "sampled"),
        histogram("seedbed_replay_sample_age_seconds", "age_s"),
        counter("seedbed_replay_stale_priorities_total", "buffer.stale_updates"),
        counter("seedbed_replay_refused_sequences_total", "buffer.refused"),
        counter("seedbed_replay_waiting_seconds_total", "waited_s", ("side",)),
        gauge("seedbed_replay_shards", "buffer.shards"),
        gauge("seedbed_replay_healthy_shards", "buffer.healthy_shards"),
    )

    def __init__(self) -> None:
        self.buffer: ReplayStats | None = None
        self.filling: str | None = None
        self.sampled = 0
        self.age_s = Histogram(AGE_BOUNDS_S)
        self.recent_age_s = RecentValues(1024)
        self.waited_s = {"insert": 0.0, "sample": 0.0}
        self._recorded_at = time.perf_counter()

    def record(self, buffer: ReplayStats, limiter: RateLimiter, samples_ahead: int = 0) -> None:
        """Record the state of the replay, and which side it has held up since the last call.

        Args:
            buffer: Newest statistics of the replay buffer.
            limiter: Rate limiter of the replay.
            samples_ahead: Batches that are requested and not taken by training yet.
        """
        now = time.perf_counter()
        passed_s, self._recorded_at = now - self._recorded_at, now
        if not limiter.may_insert():
            self.waited_s["insert"] += passed_s
        elif limiter.is_warm and not samples_ahead and not limiter.may_train():
            self.waited_s["sample"] += passed_s
        self.buffer = buffer
        self.filling = buffer.trouble or limiter.warm_up_progress(buffer.sampleable)

    @property
    def is_used(self) -> bool:
        """Whether the run has a replay."""
        return self.buffer is not None

    def on_sample(self, age_s: NDArray[np.float64]) -> None:
        """Count a batch of drawn sequences, of ages [B] in seconds."""
        self.sampled += len(age_s)
        self.age_s.observe_many(age_s)
        self.recent_age_s.extend(age_s)
