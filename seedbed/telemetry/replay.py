"""What is counted of a learner's replay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.client.replay_buffer import ReplayStats
from seedbed.runtime.metrics import Histogram
from seedbed.telemetry.windows import RecentValues

AGE_BOUNDS_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_200, 3_600, 7_200, 14_400, 43_200, 86_400)


class ReplayNumbers:
    """Kept by the thread that uses the replay, read by telemetry."""

    def __init__(self) -> None:
        self.home: ReplayStats | None = None
        self.filling: str | None = None  # how far it is, until training may begin
        self.sampled = 0  # sequences
        self.age_s = Histogram(AGE_BOUNDS_S)  # of the sequences that were drawn
        self.recent_age_s = RecentValues(1024)
        self.insert_waited_s = 0.0  # the actors were ahead of the ratio
        self.sample_waited_s = 0.0  # training was

    def on_sample(self, age_s: NDArray[np.float64]) -> None:
        """A batch of sequences was drawn, of ages [B] in seconds."""
        self.sampled += len(age_s)
        self.age_s.observe_many(age_s)
        self.recent_age_s.extend(age_s)

    def shown(self) -> dict[str, float]:
        """By name, for a row of progress.csv and status.json; empty without a replay."""
        home = self.home
        if home is None:
            return {}
        age_s = self.recent_age_s.percentile(50)
        return {
            "replay_sequences": home.size,
            "replay_sampleable": home.sampleable,
            "replay_capacity": home.capacity,
            "replay_bytes": home.bytes,
            "replay_inserted": home.inserted,
            "replay_sampled": self.sampled,
            "replay_stale_priorities": home.stale_updates,
            "replay_shards": home.shards,
            "replay_healthy_shards": home.healthy_shards,
            "replay_insert_waited_s": self.insert_waited_s,
            "replay_sample_waited_s": self.sample_waited_s,
            **({} if age_s is None else {"replay_sample_age_s_p50": age_s}),
        }
