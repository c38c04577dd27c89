"""What a replay shard exports."""

from __future__ import annotations

from seedbed.runtime.metrics import Metric

AGE_BOUNDS_S = (1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)

METRICS = (
    Metric("seedbed_replay_shard_capacity", "gauge", "Sequences that fit into this shard."),
    Metric("seedbed_replay_shard_size", "gauge", "Sequences that are stored."),
    Metric("seedbed_replay_shard_sampleable", "gauge", "Sequences that can be drawn."),
    Metric(
        "seedbed_replay_shard_total_priority",
        "gauge",
        "Sum of priority^exponent of the sequences that can be drawn.",
    ),
    Metric(
        "seedbed_replay_shard_bytes",
        "gauge",
        "Bytes of disk or memory that the shard takes, full or not; 0 before its first learner.",
    ),
    Metric("seedbed_replay_shard_inserts_total", "counter", "Sequences that came in."),
    Metric("seedbed_replay_shard_samples_total", "counter", "Sequences that were drawn."),
    Metric(
        "seedbed_replay_shard_sample_age_seconds",
        "histogram",
        "Seconds from the insertion of a sequence to its being drawn.",
    ),
    Metric(
        "seedbed_replay_shard_stale_updates_total",
        "counter",
        "New priorities for sequences that were already replaced.",
    ),
    Metric(
        "seedbed_replay_shard_corrupt_total",
        "counter",
        "Sequences that were found damaged at the start, and dropped.",
    ),
    Metric(
        "seedbed_replay_shard_insert_blocked_seconds_total",
        "counter",
        "Seconds that blocks waited for the shard, sums over learners.",
    ),
    Metric("seedbed_replay_shard_learners", "gauge", "Learners that insert now."),
    Metric(
        "seedbed_replay_shard_refused_total",
        "counter",
        "Streams that were refused, for any reason.",
    ),
)
