"""The numbers of one moment: a row of progress.csv, and what everything shown is made of."""

import time
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from seedbed.runtime.formats import Number
from seedbed.telemetry.bottleneck import Bottleneck, bottleneck
from seedbed.telemetry.busy import THREADS
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.energy import frames_per_kilojoule
from seedbed.telemetry.time_left import TimeLeft, time_left
from seedbed.telemetry.windows import FPS_WINDOWS_S, LOAD_WINDOW_S, History

if TYPE_CHECKING:
    from seedbed.telemetry.telemetry import Telemetry

RECENT_EPISODES = 100


class Snapshot(NamedTuple):
    """All numbers of one moment.

    Attributes:
        numbers: By name. Fractions are of 1; None, never 0, is "nothing measured".
        bottleneck: The part that sets the pace.
        time_left: The nearest stop condition; None if none is in sight.
    """

    numbers: dict[str, Number]
    bottleneck: Bottleneck
    time_left: TimeLeft | None


def take_snapshot(telemetry: "Telemetry", total: Counters) -> Snapshot:
    """Measure.

    Args:
        telemetry: What the parts of the learner have counted.
        total: Counters of all learners.
    """
    counters, history, sessions = telemetry.whole_counters(), telemetry.history, telemetry.sessions
    inference, training = telemetry.inference, telemetry.training
    settings = telemetry.experiment.learner
    rate, ratio = history.rate, history.ratio
    steady_s = telemetry.steady_s
    load = measure_load(history, steady_s or LOAD_WINDOW_S)
    stepping_cores = rate("environment_s", steady_s or LOAD_WINDOW_S)
    actors = max(1.0, sessions.connected / telemetry.experiment.actor.groups)
    measured = {
        **load,
        "sessions": sessions.connected,
        "environment_cores": stepping_cores,
        "actor_cores": None if stepping_cores is None else stepping_cores / actors,
        "actors_act": float(settings.inference.location == "actor"),
    }
    limit = Bottleneck("unknown", "nothing is measured while a step is compiled")
    if steady_s:
        limit = bottleneck(measured, telemetry.cores, telemetry.actors_here, telemetry.split)
    fps = {f"env_fps_{window}s": rate("env_frames", window) for window in FPS_WINDOWS_S}
    updates_per_second = rate("updates", 60)
    # The other learners go on as this one does.
    present = total.env_frames - telemetry.left_env_frames
    more = present / counters.env_frames if counters.env_frames else 1.0
    dearer = total.dollars / counters.dollars if counters.dollars else 1.0
    left = time_left(
        telemetry.experiment.stop,
        total,
        more * (fps["env_fps_60s"] or 0.0) or None,
        updates_per_second,
        dearer * telemetry.cost.dollars_per_hour,
    )
    returns = sessions.recent_returns.values(RECENT_EPISODES)
    lag, latency_s = training.recent_lag, inference.recent_latency_s
    used_envs = ratio("batch_envs", "padded_envs")
    frames = total.env_frames
    numbers: dict[str, Number] = {
        "time": time.time(),
        **metric_numbers(telemetry),
        **fps,
        "trained_fps_60s": rate("trained_frames", 60),
        "updates_per_second": updates_per_second,
        "min_return": float(returns.min()) if returns.size else None,
        "max_return": float(returns.max()) if returns.size else None,
        "mean_return_episodes": int(returns.size),
        "episode_steps_mean": sessions.recent_lengths.mean(),
        "policy_lag_mean": lag.mean(),
        "policy_lag_p50": lag.percentile(50),
        "policy_lag_max": lag.percentile(100),
        "batch_environments": ratio("batch_envs", "batches"),
        "batch_padding": None if used_envs is None else 1 - used_envs,
        "inference_ms_p50": milliseconds(latency_s.percentile(50)),
        "inference_ms_p99": milliseconds(latency_s.percentile(99)),
        "round_trip_ms_p50": milliseconds(sessions.round_trip_s(50)),
        "round_trip_ms_p99": milliseconds(sessions.round_trip_s(99)),
        "inference_run_ms": milliseconds(ratio("run_s", "batches")),
        "batch_wait_ms": milliseconds(ratio("oldest_s", "batches")),
        "train_step_ms_p50": milliseconds(training.recent_step_s.percentile(50)),
        **load,
        "dollars_per_billion_frames": total.dollars / frames * 1e9 if frames else None,
        "watts": rate("joules"),
        "frames_per_kilojoule": frames_per_kilojoule(rate("env_frames"), rate("joules")),
        "eta_s": left.seconds if left else None,
        "bottleneck": limit.part,
    }
    if telemetry.replay.is_used:
        numbers |= {f"replay_waiting_seconds_{x}": s for x, s in telemetry.replay.waited_s.items()}
        numbers["replay_sample_age_s_p50"] = telemetry.replay.recent_age_s.percentile(50)
    if (gossip := telemetry.gossip).is_used:
        numbers["gossip_distance_max"] = max(gossip.distance.values(), default=0.0)
        numbers["gossip_staleness_iterations_max"] = max(gossip.staleness.values(), default=0)
    return Snapshot(numbers, limit, left)


def metric_numbers(telemetry: "Telemetry") -> dict[str, Number]:
    """Return the numbers of the metrics that have columns.

    Those of the telemetry itself are left out, because they are made of the snapshot, and so are
    those of a replay or a gossip that the run does not use. Counters are of all hosts.
    """
    numbers: dict[str, Number] = {}
    for metric, stats in telemetry.registry.metrics:
        if not metric.is_column or stats is telemetry or not getattr(stats, "is_used", True):
            continue
        whole = telemetry.whole_counters() if stats is telemetry.counters else stats
        for name, number in metric.numbers(metric.value(whole)).items():
            numbers[name] = None if isnan(number) else number
    return numbers


def measure_load(history: History, window_s: float) -> dict[str, float | None]:
    """Measure how busy each part was in the last seconds; None is unknown.

    `busy_fraction_*` and `blocked_fraction_*` are of each thread's time, `wire_cpu` of one core,
    `actor_*` of the groups' time, which passes in environment steps, before a full unroll queue, in
    the learner, and beyond.

    Args:
        history: The recent totals of the learner.
        window_s: How many seconds.
    """
    rate = partial(history.rate, window_s=window_s)
    ratio = partial(history.ratio, window_s=window_s)
    step_s, wait_s = ratio("environment_s", "messages"), ratio("wait_s", "messages")
    latency_s = ratio("latency_s", "requests")
    queued_s = ratio("backpressure_s", "messages") or 0.0
    stepping = network = None
    if step_s is not None and wait_s is not None and step_s + wait_s > 0:
        stepping = step_s / (step_s + wait_s)
        if latency_s is not None:
            network = max(0.0, wait_s - latency_s - queued_s) / (step_s + wait_s)
    return {
        "unroll_queue_fill": ratio("fill", "depths"),
        **{f"busy_fraction_{name}": rate(f"busy_{name}") for name in THREADS},
        **{f"blocked_fraction_{name}": rate(f"blocked_{name}") for name in THREADS},
        "wire_cpu": rate("grpc_cpu_s"),
        "learner_cpu_cores": rate("learner_cpu_s"),
        "machine_cores": rate("machine_cpu_s"),
        "actor_stepping_fraction": stepping,
        "actor_held_up": queued_s / (step_s + wait_s) if step_s and wait_s else None,
        "actor_network": network,
    }


def milliseconds(seconds: float | None) -> float | None:
    """Convert seconds; None stays None."""
    return None if seconds is None else 1000 * seconds
