"""Metrics of a replay shard, on its own /metrics."""

from __future__ import annotations

from seedbed.runtime.metrics import Metric, counter, gauge, histogram

AGE_BOUNDS_S = (1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)


# Read from a `Shard`.
METRICS: tuple[Metric, ...] = (
    gauge(
        "seedbed_replay_shard_capacity",
        "Sequences that fit into this shard.",
        lambda s: s.state().capacity,
    ),
    gauge("seedbed_replay_shard_size", "Sequences that are stored.", lambda s: s.state().size),
    gauge(
        "seedbed_replay_shard_sampleable",
        "Sequences that can be drawn.",
        lambda s: s.state().sampleable,
    ),
    gauge(
        "seedbed_replay_shard_total_priority",
        "Sum of priority^exponent of the sequences that can be drawn.",
        lambda s: s.state().total_priority,
    ),
    gauge(
        "seedbed_replay_shard_bytes",
        "Bytes of disk or memory that the shard takes, full or not; 0 before its first learner.",
        lambda s: s.state().bytes,
    ),
    counter(
        "seedbed_replay_shard_inserts_total", "Sequences inserted.", lambda s: s.state().inserted
    ),
    counter("seedbed_replay_shard_samples_total", "Sequences drawn.", lambda s: s.state().sampled),
    histogram(
        "seedbed_replay_shard_sample_age_seconds",
        "Seconds from the insertion of a sequence to a draw.",
        "age_s",
    ),
    counter(
        "seedbed_replay_shard_stale_updates_total",
        "New priorities for sequences that were already replaced.",
        lambda s: s.state().stale_updates,
    ),
    counter(
        "seedbed_replay_shard_corrupt_total",
        "Sequences that were found corrupt at the start, and dropped.",
        lambda s: s.state().corrupt,
    ),
    counter(
        "seedbed_replay_shard_insert_blocked_seconds_total",
        "Seconds that inserts waited for the shard, summed over learners.",
        "insert_blocked_s",
    ),
    gauge("seedbed_replay_shard_learners", "Learners that insert now.", "learners"),
    counter(
        "seedbed_replay_shard_refused_total",
        "Streams that were refused, for any reason.",
        "refused",
    ),
)
