"""The names of the numbers of a run, and those of kept files.

A number of `progress.csv`, of `numbers` in status.json, of TensorBoard and of W&B has the name of
its metric, without `seedbed_` and `_total`, with the labels' values (`Metric.numbers`).
"""

from collections.abc import Iterable

from seedbed.telemetry.busy import THREADS

OLD_NAMES = {
    "actor_stepping": "actor_stepping_fraction",
    "checkpoint_age_s": "checkpoint_age_seconds",
    "checkpoint_every_s": "checkpoint_interval_seconds",
    "checkpoint_failed": "checkpoint_failures",
    "checkpoint_written": "checkpoints",
    "dollars": "run_dollars",
    "dollars_per_hour": "run_dollars_per_hour",
    "epsilon_highest": "exploration_epsilon_highest",
    "epsilon_lowest": "exploration_epsilon_lowest",
    "gossip_distance": "gossip_distance_max",
    "gossip_staleness": "gossip_staleness_iterations_max",
    "inference_queue_requests": "inference_queue_depth",
    "learner_cores": "learner_cpu_cores",
    "replay_insert_waited_s": "replay_waiting_seconds_insert",
    "replay_inserted": "replay_inserted_sequences",
    "replay_sample_waited_s": "replay_waiting_seconds_sample",
    "replay_sampled": "replay_sampled_sequences",
    "return_episodes": "mean_return_episodes",
    "return_max": "max_return",
    "return_mean": "mean_return",
    "return_min": "min_return",
    "seconds": "run_seconds",
    "skipped_updates": "updates_skipped",
    "unroll_queue_columns": "unroll_queue_depth",
    "updates_per_s": "updates_per_second",
    **{f"busy_{name}": f"busy_fraction_{name}" for name in THREADS},
    **{f"blocked_{name}": f"blocked_fraction_{name}" for name in THREADS},
}


def present_names(names: Iterable[str]) -> list[str]:
    """Return the names of a kept file as they are today.

    Args:
        names: Names in a file; one whose successor is there too is another number, and stays.
    """
    there = list(names)
    return [old if (new := OLD_NAMES.get(old, old)) in there else new for old in there]
