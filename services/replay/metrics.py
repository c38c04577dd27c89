"""Metrics of a replay shard, on its own /metrics.

Attributes:
    present.capacity: Sequences that fit into this shard.
    present.size: Sequences that are stored.
    present.sampleable: Sequences that can be drawn.
    present.total_priority: Sum of priority^exponent of the sequences that can be drawn.
    present.bytes: Bytes of disk or memory that the shard takes, full or not; 0 before its first
        learner.
    present.inserted: Sequences inserted.
    present.sampled: Sequences drawn.
    present.stale_updates: New priorities for sequences that were already replaced.
    present.corrupt: Sequences that were found corrupt at the start, and dropped.
    age_s: Seconds from the insertion of a sequence to a draw.
    insert_blocked_s: Seconds that inserts waited for the shard, summed over learners.
    learners: Learners that insert now.
    refused: Streams that were refused, for any reason.
"""

from seedbed.runtime.metrics import counter, documented, gauge, histogram

AGE_BOUNDS_S = (1, 3, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)

# Read from a `Shard`.
METRICS = documented(
    __doc__,
    gauge("seedbed_replay_shard_capacity", "present.capacity"),
    gauge("seedbed_replay_shard_size", "present.size"),
    gauge("seedbed_replay_shard_sampleable", "present.sampleable"),
    gauge("seedbed_replay_shard_total_priority", "present.total_priority"),
    gauge("seedbed_replay_shard_bytes", "present.bytes"),
    counter("seedbed_replay_shard_inserts_total", "present.inserted"),
    counter("seedbed_replay_shard_samples_total", "present.sampled"),
    histogram("seedbed_replay_shard_sample_age_seconds", "age_s"),
    counter("seedbed_replay_shard_stale_updates_total", "present.stale_updates"),
    counter("seedbed_replay_shard_corrupt_total", "present.corrupt"),
    counter("seedbed_replay_shard_insert_blocked_seconds_total", "insert_blocked_s"),
    gauge("seedbed_replay_shard_learners", "learners"),
    counter("seedbed_replay_shard_refused_total", "refused"),
)
