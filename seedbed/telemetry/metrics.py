"""What the learner exports to Prometheus, and from where each value comes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from seedbed.runtime.metrics import Metric, Value
from seedbed.telemetry.bottleneck import WORDS
from seedbed.telemetry.numbers import FPS_WINDOWS_S, Number
from seedbed.telemetry.recorder import THREADS, Recorder

_NONE = "NaN until there is one."
_NO_REPLAY = "NaN without a replay."
_NO_PEERS = "NaN of a single learner."

METRICS = (
    Metric(
        "seedbed_env_frames_total",
        "counter",
        "Emulator frames (steps times action repeat) that arrived from actors, over all restarts.",
    ),
    Metric("seedbed_trained_frames_total", "counter", "Frames trained on, over all restarts."),
    Metric(
        "seedbed_discarded_frames_total",
        "counter",
        "Frames that will never be trained on, over all restarts.",
    ),
    Metric(
        "seedbed_discarded_frames_by_reason_total",
        "counter",
        "Frames discarded by this process, by reason; a reason appears with its first frame.",
        "reason",
    ),
    Metric(
        "seedbed_inserted_frames_total",
        "counter",
        "Frames that went into replay, over all restarts; 0 for agents without one.",
    ),
    Metric("seedbed_updates_total", "counter", "Updates of the parameters, over all restarts."),
    Metric("seedbed_episodes_total", "counter", "Episodes that ended, over all restarts."),
    Metric(
        "seedbed_abandoned_episodes_total",
        "counter",
        "Episodes cut by a disconnect or a restart, over all restarts; they have no return.",
    ),
    Metric(
        "seedbed_run_seconds_total", "counter", "Seconds that a learner ran, over all restarts."
    ),
    Metric(
        "seedbed_env_fps",
        "gauge",
        "Emulator frames a second over the last 10, 60 and 300 seconds.",
        "window",
    ),
    Metric("seedbed_updates_per_second", "gauge", "Updates a second over the last minute."),
    Metric(
        "seedbed_episode_return",
        "histogram",
        "Undiscounted, unclipped returns of the episodes that ended in this process.",
    ),
    Metric("seedbed_episode_length", "histogram", "Lengths of those episodes, in steps."),
    Metric(
        "seedbed_mean_return",
        "gauge",
        f"Mean return of the last episodes, up to 100. {_NONE}",
    ),
    Metric(
        "seedbed_inference_latency_seconds",
        "histogram",
        "Seconds from a request's arrival at the learner until its actions were ready.",
    ),
    Metric("seedbed_inference_batch_size", "histogram", "Environments in an inference batch."),
    Metric("seedbed_inference_queue_depth", "gauge", "Requests that wait for inference now."),
    Metric("seedbed_unroll_queue_depth", "gauge", "Columns of unrolls that wait for training now."),
    Metric(
        "seedbed_unroll_queue_capacity", "gauge", "Columns at which the queue holds up inference."
    ),
    Metric(
        "seedbed_policy_lag_updates",
        "histogram",
        "Updates between acting and training, mean of each trained column.",
    ),
    Metric("seedbed_train_step_seconds", "histogram", "Seconds of a training step."),
    Metric("seedbed_sessions", "gauge", "Actor streams connected now."),
    Metric("seedbed_environments", "gauge", "Environments connected now."),
    Metric(
        "seedbed_busy_fraction",
        "gauge",
        "Fraction of the last 30 seconds that a thread worked.",
        "thread",
    ),
    Metric(
        "seedbed_blocked_fraction",
        "gauge",
        "Fraction of the last 30 seconds that a thread could not go on because of a neighbour.",
        "thread",
    ),
    Metric(
        "seedbed_actor_stepping_fraction",
        "gauge",
        f"Fraction of the actors' time spent in environment steps; they wait in the rest. {_NONE}",
    ),
    Metric("seedbed_learner_cpu_cores", "gauge", "Cores that the learner's process used."),
    Metric(
        "seedbed_bottleneck",
        "gauge",
        "1 for the part that sets the pace, 0 for the others.",
        "part",
    ),
    Metric("seedbed_replay_sequences", "gauge", f"Sequences that are stored. {_NO_REPLAY}"),
    Metric("seedbed_replay_sampleable", "gauge", f"Those that can be drawn. {_NO_REPLAY}"),
    Metric("seedbed_replay_capacity", "gauge", f"Sequences that fit. {_NO_REPLAY}"),
    Metric("seedbed_replay_bytes", "gauge", f"Bytes that it takes when full. {_NO_REPLAY}"),
    Metric(
        "seedbed_replay_inserted_sequences_total", "counter", "Sequences inserted by this process."
    ),
    Metric("seedbed_replay_sampled_sequences_total", "counter", "Sequences drawn, likewise."),
    Metric(
        "seedbed_replay_sample_age_seconds",
        "histogram",
        "Seconds between a sequence's insertion and its being drawn.",
    ),
    Metric(
        "seedbed_replay_stale_priorities_total",
        "counter",
        "Priorities that came for sequences already replaced.",
    ),
    Metric(
        "seedbed_replay_waiting_seconds_total",
        "counter",
        "Seconds in which learner.replay.ratio held a side up: `insert` is the actors, that are "
        "ahead of training, `sample` is training, that is ahead of the actors.",
        "side",
    ),
    Metric("seedbed_replay_shards", "gauge", f"Replay shards, 0 within the learner. {_NO_REPLAY}"),
    Metric("seedbed_replay_healthy_shards", "gauge", f"Those that answer. {_NO_REPLAY}"),
    Metric("seedbed_gossip_peers", "gauge", f"Learners, this one included. {_NO_PEERS}"),
    Metric("seedbed_gossip_peers_alive", "gauge", f"Those that make progress. {_NO_PEERS}"),
    Metric(
        "seedbed_gossip_mixes_total",
        "counter",
        "Mixings of peers' parameters, or of all gradients, by this process.",
    ),
    Metric("seedbed_gossip_sent_total", "counter", "Messages that a peer has received whole."),
    Metric("seedbed_gossip_sent_bytes_total", "counter", "Their parameters, in bytes."),
    Metric("seedbed_gossip_received_total", "counter", "Messages from peers."),
    Metric("seedbed_gossip_received_bytes_total", "counter", "Their parameters, in bytes."),
    Metric(
        "seedbed_gossip_superseded_total",
        "counter",
        "Messages that a newer one of the same peer replaced before they were mixed.",
    ),
    Metric(
        "seedbed_gossip_seconds_total", "counter", "Seconds of the training thread for its peers."
    ),
    Metric("seedbed_gossip_wait_seconds_total", "counter", "Those in which it waited for one."),
    Metric(
        "seedbed_gossip_update_norm",
        "gauge",
        f"2-norm of what the newest update added to the parameters. {_NO_PEERS}",
    ),
    Metric(
        "seedbed_gossip_distance",
        "gauge",
        "2-norm between these parameters and the newest ones of a peer, by its rank; measured "
        "every `gossip.distance_every` mixings.",
        "peer",
    ),
    Metric(
        "seedbed_gossip_staleness_iterations",
        "gauge",
        "Local iterations since a message of a peer, by its rank.",
        "peer",
    ),
    Metric(
        "seedbed_gossip_bound_void",
        "gauge",
        "1 while the graphs among those alive are not strongly connected, so that nothing bounds "
        f"how far they drift apart. {_NO_PEERS}",
    ),
    Metric("seedbed_loss", "gauge", f"Loss of the newest update. {_NONE}"),
    Metric(
        "seedbed_training_scalar",
        "gauge",
        "Every other number of the newest update; each appears with the first update.",
        "name",
    ),
    Metric(
        "seedbed_user_scalar",
        "gauge",
        "What logging.scalars returned last; each appears when it is first returned.",
        "name",
    ),
    Metric(
        "seedbed_stream_errors_total",
        "counter",
        "Streams ended because of what they sent, by the field that did not fit.",
        "field",
    ),
    Metric("seedbed_checkpoints_total", "counter", "Checkpoints written by this process."),
    Metric("seedbed_checkpoint_failures_total", "counter", "Checkpoints that failed, likewise."),
    Metric("seedbed_checkpoint_seconds", "gauge", f"Time the newest one took. {_NONE}"),
    Metric("seedbed_checkpoint_bytes", "gauge", f"Size of the newest one. {_NONE}"),
    Metric("seedbed_checkpoint_age_seconds", "gauge", f"Age of the newest one. {_NONE}"),
    Metric("seedbed_checkpoint_interval_seconds", "gauge", "`learner.checkpoint.every_s`."),
    Metric("seedbed_evaluations_total", "counter", "Evaluations ended in this process."),
    Metric(
        "seedbed_evaluation",
        "gauge",
        "Numbers of the newest evaluation; they appear with the first.",
        "statistic",
    ),
    Metric(
        "seedbed_run_dollars_total",
        "counter",
        "US dollars so far, over all restarts; with a cost meter, what that has counted.",
    ),
    Metric(
        "seedbed_run_dollars_per_hour",
        "gauge",
        "US dollars an hour, by the section `cost`; with a cost meter, what that says.",
    ),
    Metric(
        "seedbed_run_budget_dollars", "gauge", "`stop.dollars`, at which the run ends; 0 is none."
    ),
    Metric("seedbed_run_finished", "gauge", "1 once a stop condition is met."),
    Metric(
        "seedbed_telemetry_errors_total",
        "counter",
        "Intervals in which an output could not be written; the log says why.",
        "output",
    ),
)

STREAM_ERROR_FIELDS = (
    *("protocol_version", "environment", "environments", "observation", "actions"),
    *("action_repeat", "sequence", "reward", "flags", "slots", "idle"),
)
OUTPUTS = ("progress.csv", "tensorboard", "status.json", "live line", "wandb")


def read_metrics(
    recorder: Recorder,
    numbers: Mapping[str, Number],
    user_scalars: Mapping[str, float],
    output_errors: Mapping[str, int],
) -> dict[str, Value]:
    """The value of each row of `METRICS`. `numbers` are those of the newest tick, if any."""
    counters = recorder.counters

    def measured(name: str, nothing: float = 0.0) -> float:
        value = numbers.get(name)
        return nothing if value is None else float(value)

    replay = recorder.replay
    kept = replay.shown()
    gossip = recorder.gossip
    shown = gossip.shown()
    written_at = recorder.checkpoint_at
    return {
        "seedbed_env_frames_total": counters.env_frames,
        "seedbed_trained_frames_total": counters.trained_frames,
        "seedbed_discarded_frames_total": counters.discarded_frames,
        "seedbed_discarded_frames_by_reason_total": dict(recorder.discarded_by_reason),
        "seedbed_inserted_frames_total": counters.inserted_frames,
        "seedbed_updates_total": counters.updates,
        "seedbed_episodes_total": counters.episodes,
        "seedbed_abandoned_episodes_total": counters.abandoned_episodes,
        "seedbed_run_seconds_total": counters.seconds,
        "seedbed_env_fps": {f"{w}s": measured(f"env_fps_{w}s") for w in FPS_WINDOWS_S},
        "seedbed_updates_per_second": measured("updates_per_s"),
        "seedbed_episode_return": recorder.returns,
        "seedbed_episode_length": recorder.lengths,
        "seedbed_mean_return": _or_nan(recorder.recent_returns.mean(100)),
        "seedbed_inference_latency_seconds": recorder.latency_s,
        "seedbed_inference_batch_size": recorder.batch_rows,
        "seedbed_inference_queue_depth": recorder.inference_requests,
        "seedbed_unroll_queue_depth": recorder.unroll_columns,
        "seedbed_unroll_queue_capacity": recorder.unroll_capacity,
        "seedbed_policy_lag_updates": recorder.lag,
        "seedbed_train_step_seconds": recorder.step_s,
        "seedbed_sessions": recorder.sessions,
        "seedbed_environments": recorder.environments,
        "seedbed_busy_fraction": {name: measured(f"busy_{name}") for name in THREADS},
        "seedbed_blocked_fraction": {name: measured(f"blocked_{name}") for name in THREADS},
        "seedbed_actor_stepping_fraction": measured("actor_stepping", math.nan),
        "seedbed_learner_cpu_cores": measured("learner_cores"),
        "seedbed_bottleneck": {
            word: float(word == numbers.get("bottleneck", "unknown")) for word in WORDS
        },
        **{
            f"seedbed_{name}": kept.get(name, math.nan)
            for name in (
                *("replay_sequences", "replay_sampleable", "replay_capacity", "replay_bytes"),
                *("replay_shards", "replay_healthy_shards"),
            )
        },
        "seedbed_replay_inserted_sequences_total": kept.get("replay_inserted", 0),
        "seedbed_replay_sampled_sequences_total": replay.sampled,
        "seedbed_replay_sample_age_seconds": replay.age_s,
        "seedbed_replay_stale_priorities_total": kept.get("replay_stale_priorities", 0),
        "seedbed_replay_waiting_seconds_total": {
            "insert": replay.insert_waited_s,
            "sample": replay.sample_waited_s,
        },
        **{
            f"seedbed_{name}": shown.get(name, math.nan)
            for name in (
                *("gossip_peers", "gossip_peers_alive", "gossip_update_norm"),
                "gossip_bound_void",
            )
        },
        "seedbed_gossip_mixes_total": gossip.mixes,
        "seedbed_gossip_sent_total": gossip.sent,
        "seedbed_gossip_sent_bytes_total": gossip.sent_bytes,
        "seedbed_gossip_received_total": gossip.received,
        "seedbed_gossip_received_bytes_total": gossip.received_bytes,
        "seedbed_gossip_superseded_total": gossip.superseded,
        "seedbed_gossip_seconds_total": gossip.seconds,
        "seedbed_gossip_wait_seconds_total": gossip.wait_seconds,
        "seedbed_gossip_distance": {str(rank): x for rank, x in gossip.distance.items()},
        "seedbed_gossip_staleness_iterations": {
            str(rank): x for rank, x in gossip.staleness.items()
        },
        "seedbed_loss": recorder.scalars.get("loss", math.nan),
        "seedbed_training_scalar": {
            name: value for name, value in recorder.scalars.items() if name != "loss"
        },
        "seedbed_user_scalar": dict(user_scalars),
        "seedbed_stream_errors_total": {
            **dict.fromkeys(STREAM_ERROR_FIELDS, 0),
            **recorder.stream_errors,
        },
        "seedbed_checkpoints_total": recorder.checkpoints,
        "seedbed_checkpoint_failures_total": recorder.checkpoint_failures,
        "seedbed_checkpoint_seconds": recorder.checkpoint_s,
        "seedbed_checkpoint_bytes": recorder.checkpoint_bytes,
        "seedbed_checkpoint_age_seconds": math.nan
        if written_at is None
        else time.monotonic() - written_at,
        "seedbed_checkpoint_interval_seconds": recorder.checkpoint_interval_s,
        "seedbed_evaluations_total": recorder.evaluations,
        "seedbed_evaluation": _floats(recorder.evaluation),
        "seedbed_run_dollars_total": counters.dollars,
        "seedbed_run_dollars_per_hour": measured("dollars_per_hour"),
        "seedbed_run_budget_dollars": recorder.budget_dollars,
        "seedbed_run_finished": float(recorder.over is not None),
        "seedbed_telemetry_errors_total": {**dict.fromkeys(OUTPUTS, 0), **output_errors},
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _floats(result: Mapping[str, object]) -> dict[str, float]:
    """The numbers of a mapping; lists, texts and flags are left out."""
    return {
        name: float(value)
        for name, value in result.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
