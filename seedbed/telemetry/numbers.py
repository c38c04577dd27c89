"""The numbers of one moment: a row of progress.csv, and what everything shown is made of."""

from __future__ import annotations

import time

from seedbed.config.schema import Experiment
from seedbed.telemetry.bottleneck import Bottleneck, Load, bottleneck
from seedbed.telemetry.cost import dollars_per_billion_frames
from seedbed.telemetry.eta import Eta, eta
from seedbed.telemetry.recorder import THREADS, Recorder
from seedbed.telemetry.windows import History

Number = float | int | str | None

LOAD_WINDOW_S = 30.0  # fractions and means: long enough for a slow training step, short to react
FPS_WINDOWS_S = (10, 60, 300)
RECENT_EPISODES = 100


def take_numbers(
    experiment: Experiment,
    recorder: Recorder,
    history: History,
    *,
    cores: float,
    dollars_per_hour: float,
    actors_here: bool,
) -> tuple[dict[str, Number], Bottleneck, Eta | None]:
    """All numbers of now. Fractions are of 1; None, never 0, is "nothing measured"."""
    counters = recorder.counters
    load = measure_load(recorder, history, cores, actors_here, experiment.actor.groups)
    limit = bottleneck(load)
    fps = {f"env_fps_{window}s": history.rate("env_frames", window) for window in FPS_WINDOWS_S}
    updates_per_s = history.rate("updates", 60)
    total = recorder.together()
    # The others go on as this one does.
    more = total.env_frames / counters.env_frames if counters.env_frames else 1.0
    dearer = total.dollars / counters.dollars if counters.dollars else 1.0
    end = eta(
        experiment.stop,
        total,
        more * (fps["env_fps_60s"] or 0.0) or None,
        updates_per_s,
        dearer * dollars_per_hour,
    )
    returns = recorder.recent_returns.values(RECENT_EPISODES)
    lag = recorder.recent_lag
    ratio = history.ratio
    numbers: dict[str, Number] = {
        "time": time.time(),
        "seconds": counters.seconds,
        "env_frames": counters.env_frames,
        "trained_frames": counters.trained_frames,
        "inserted_frames": counters.inserted_frames,
        "discarded_frames": counters.discarded_frames,
        "updates": counters.updates,
        "episodes": counters.episodes,
        "abandoned_episodes": counters.abandoned_episodes,
        **fps,
        "trained_fps_60s": history.rate("trained_frames", 60),
        "updates_per_s": updates_per_s,
        "return_mean": float(returns.mean()) if returns.size else None,
        "return_min": float(returns.min()) if returns.size else None,
        "return_max": float(returns.max()) if returns.size else None,
        "return_episodes": int(returns.size),
        "episode_steps_mean": recorder.recent_lengths.mean(),
        "policy_lag_mean": lag.mean(),
        "policy_lag_p50": lag.percentile(50),
        "policy_lag_max": lag.percentile(100),
        "batch_environments": ratio("rows", "batches", LOAD_WINDOW_S),
        "batch_padding": _padding(history),
        "inference_ms_p50": _ms(recorder.recent_latency_s.percentile(50)),
        "inference_ms_p99": _ms(recorder.recent_latency_s.percentile(99)),
        "inference_run_ms": _ms(ratio("run_s", "batches", LOAD_WINDOW_S)),
        "batch_wait_ms": _ms(ratio("oldest_s", "batches", LOAD_WINDOW_S)),
        "train_step_ms_p50": _ms(recorder.recent_step_s.percentile(50)),
        "sessions": recorder.sessions,
        "environments": recorder.environments,
        "inference_queue_requests": recorder.inference_requests,
        "unroll_queue_columns": recorder.unroll_columns,
        "unroll_queue_capacity": recorder.unroll_capacity,
        "unroll_queue_fill": load.queue_fill,
        **{f"busy_{name}": (load.busy or {}).get(name) for name in THREADS},
        **{f"blocked_{name}": (load.blocked or {}).get(name) for name in THREADS},
        "wire_cpu": load.wire,
        "learner_cores": load.learner_cores,
        "machine_cores": load.machine_cores,
        "actor_stepping": load.stepping,
        "actor_held_up": load.held_up,
        "actor_network": load.network,
        "dollars": counters.dollars,
        "dollars_per_hour": dollars_per_hour,
        "dollars_per_billion_frames": dollars_per_billion_frames(
            counters.dollars, counters.env_frames
        ),
        "eta_s": end.seconds if end else None,
        "bottleneck": limit.word,
        **recorder.replay.shown(),
        **recorder.gossip.shown(),
    }
    return numbers, limit, end


def measure_load(
    recorder: Recorder, history: History, cores: float, actors_here: bool, groups: int
) -> Load:
    """What `bottleneck` needs, over the last `LOAD_WINDOW_S`. `groups`: streams of an actor."""
    rate = history.rate

    def rates(prefix: str) -> dict[str, float]:
        found = {name: rate(f"{prefix}_{name}", LOAD_WINDOW_S) for name in THREADS}
        return {name: value for name, value in found.items() if value is not None}

    step_s = history.ratio("environment_s", "messages", LOAD_WINDOW_S)
    wait_s = history.ratio("wait_s", "messages", LOAD_WINDOW_S)
    latency_s = history.ratio("latency_s", "requests", LOAD_WINDOW_S)
    queued_s = history.ratio("held_up_s", "messages", LOAD_WINDOW_S) or 0.0
    stepping_cores = rate("environment_s", LOAD_WINDOW_S)
    stepping = network = None
    if step_s is not None and wait_s is not None and step_s + wait_s > 0:
        stepping = step_s / (step_s + wait_s)
        if latency_s is not None:
            network = max(0.0, wait_s - latency_s - queued_s) / (step_s + wait_s)
    return Load(
        sessions=recorder.sessions,
        busy=rates("busy"),
        blocked=rates("blocked"),
        stepping=stepping,
        actor_cores=stepping_cores / max(1.0, recorder.sessions / groups)
        if stepping_cores is not None
        else None,
        held_up=queued_s / (step_s + wait_s) if step_s and wait_s else None,
        network=network,
        queue_fill=history.ratio("fill", "depths", LOAD_WINDOW_S),
        wire=rate("wire_cpu_s", LOAD_WINDOW_S),
        cores=cores,
        learner_cores=rate("learner_cpu_s", LOAD_WINDOW_S),
        machine_cores=rate("machine_cpu_s", LOAD_WINDOW_S),
        environment_cores=stepping_cores,
        actors_here=actors_here,
    )


def _padding(history: History) -> float | None:
    """Fraction of inference rows that were padding."""
    used = history.ratio("rows", "padded_rows", LOAD_WINDOW_S)
    return None if used is None else 1 - used


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
