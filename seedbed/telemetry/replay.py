"""Counts of a learner's replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.replay_buffer import ReplayStats
from seedbed.runtime.metrics import Histogram, Metric, counter, gauge, histogram
from seedbed.telemetry.windows import RecentValues

AGE_BOUNDS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_200, 3_600, 7_200, 14_400, 43_200, 86_400)


def _of_buffer(name: str, nothing: float) -> Callable[[Any], float]:
    return lambda s: nothing if s.buffer is None else getattr(s.buffer, name)


class ReplaySourceStats:
    """Written by the thread that draws from the replay buffer, read by telemetry.

    Attributes:
        buffer: Newest statistics of the replay buffer; None without one.
        filling: How far the buffer is from the size at which training may begin, in words.
        sampled: Sequences drawn by this process.
        insert_waited_s: How long the actors were ahead of the replay ratio.
        sample_waited_s: How long training was ahead of the replay ratio.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = (
        gauge(
            "seedbed_replay_sequences",
            "Sequences that are stored. NaN without a replay.",
            _of_buffer("size", math.nan),
        ),
        gauge(
            "seedbed_replay_sampleable",
            "Sequences that can be drawn. NaN without a replay.",
            _of_buffer("sampleable", math.nan),
        ),
        gauge(
            "seedbed_replay_capacity",
            "Sequences that the replay can store. NaN without a replay.",
            _of_buffer("capacity", math.nan),
        ),
        gauge(
            "seedbed_replay_bytes",
            "Bytes that a full replay takes. NaN without a replay.",
            _of_buffer("bytes", math.nan),
        ),
        counter(
            "seedbed_replay_inserted_sequences_total",
            "Sequences inserted by this process.",
            _of_buffer("inserted", 0),
        ),
        counter(
            "seedbed_replay_sampled_sequences_total", "Sequences drawn by this process.", "sampled"
        ),
        histogram(
            "seedbed_replay_sample_age_seconds",
            "Seconds between the insertion of a sequence and a draw.",
            "age_s",
        ),
        counter(
            "seedbed_replay_stale_priorities_total",
            "Priorities that came for sequences already replaced.",
            _of_buffer("stale_updates", 0),
        ),
        counter(
            "seedbed_replay_waiting_seconds_total",
            "Seconds in which the replay ratio held a side up: `insert` is the actors, ahead of "
            "training, `sample` is training, ahead of the actors.",
            lambda s: {"insert": s.insert_waited_s, "sample": s.sample_waited_s},
            "side",
        ),
        gauge(
            "seedbed_replay_shards",
            "Replay shards, 0 within the learner. NaN without a replay.",
            _of_buffer("shards", math.nan),
        ),
        gauge(
            "seedbed_replay_healthy_shards",
            "Replay shards that answer. NaN without a replay.",
            _of_buffer("healthy_shards", math.nan),
        ),
    )

    def __init__(self) -> None:
        self.buffer: ReplayStats | None = None
        self.filling: str | None = None
        self.sampled = 0
        self.age_s = Histogram(AGE_BOUNDS_S)
        self.recent_age_s = RecentValues(1024)
        self.insert_waited_s = 0.0
        self.sample_waited_s = 0.0

    def on_sample(self, age_s: NDArray[np.float64]) -> None:
        """Count a batch of drawn sequences, of ages [B] in seconds."""
        self.sampled += len(age_s)
        self.age_s.observe_many(age_s)
        self.recent_age_s.extend(age_s)

    def as_dict(self) -> dict[str, float]:
        """Return the columns of progress.csv and status.json; empty without a replay."""
        buffer = self.buffer
        if buffer is None:
            return {}
        age_s = self.recent_age_s.percentile(50)
        return {
            "replay_sequences": buffer.size,
            "replay_sampleable": buffer.sampleable,
            "replay_capacity": buffer.capacity,
            "replay_bytes": buffer.bytes,
            "replay_inserted": buffer.inserted,
            "replay_sampled": self.sampled,
            "replay_stale_priorities": buffer.stale_updates,
            "replay_shards": buffer.shards,
            "replay_healthy_shards": buffer.healthy_shards,
            "replay_insert_waited_s": self.insert_waited_s,
            "replay_sample_waited_s": self.sample_waited_s,
            **({} if age_s is None else {"replay_sample_age_s_p50": age_s}),
        }
