"""The numbers of one moment: a row of progress.csv, and what everything shown is made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from seedbed.config.schema import Experiment
from seedbed.telemetry.bottleneck import Load, bottleneck
from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.cost import dollars_per_billion_frames
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipStats
from seedbed.telemetry.inference import InferenceStats
from seedbed.telemetry.replay import ReplaySourceStats
from seedbed.telemetry.sessions import SessionStats
from seedbed.telemetry.time_left import TimeLeft, time_left
from seedbed.telemetry.training import TrainingStats
from seedbed.telemetry.windows import History

Number = float | int | str | None

# Long enough for a slow training step, short enough to react.
LOAD_WINDOW_S = 30.0
FPS_WINDOWS_S = (10, 60, 300)
RECENT_EPISODES = 100


@dataclass(frozen=True)
class LearnerStats:
    """The stats objects of one learner.

    Attributes:
        busy: The clock of each thread, by name.
    """

    counters: Counters
    sessions: SessionStats
    inference: InferenceStats
    training: TrainingStats
    replay: ReplaySourceStats
    gossip: GossipStats
    busy: Mapping[str, BusyClock]


class Snapshot:
    """All numbers of one moment.

    Attributes:
        numbers: By name. Fractions are of 1; None, never 0, is "nothing measured".
        bottleneck: The part that sets the pace.
        time_left: The nearest stop condition; None if none is in sight.
    """

    def __init__(
        self,
        experiment: Experiment,
        stats: LearnerStats,
        history: History,
        *,
        total: Counters,
        cores: float,
        dollars_per_hour: float,
        actors_here: bool,
    ) -> None:
        """Measure.

        Args:
            experiment: The run's settings.
            stats: What the parts have counted.
            history: The recent totals of `stats`.
            total: Counters of all learners.
            cores: Cores that the learner may use.
            dollars_per_hour: What this learner costs.
            actors_here: The actors run on the learner's machine.
        """
        counters = stats.counters
        load = measure_load(stats, history, cores, actors_here, experiment.actor.groups)
        self.bottleneck = bottleneck(load)
        rate, ratio = history.rate, history.ratio
        fps = {f"env_fps_{window}s": rate("env_frames", window) for window in FPS_WINDOWS_S}
        updates_per_s = rate("updates", 60)
        # The other learners go on as this one does.
        more = total.env_frames / counters.env_frames if counters.env_frames else 1.0
        dearer = total.dollars / counters.dollars if counters.dollars else 1.0
        self.time_left: TimeLeft | None = time_left(
            experiment.stop,
            total,
            more * (fps["env_fps_60s"] or 0.0) or None,
            updates_per_s,
            dearer * dollars_per_hour,
        )
        returns = stats.sessions.recent_returns.values(RECENT_EPISODES)
        lag, latency_s = stats.training.recent_lag, stats.inference.recent_latency_s
        used_envs = ratio("batch_envs", "padded_envs", LOAD_WINDOW_S)
        self.numbers: dict[str, Number] = {
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
            "trained_fps_60s": rate("trained_frames", 60),
            "updates_per_s": updates_per_s,
            "return_mean": float(returns.mean()) if returns.size else None,
            "return_min": float(returns.min()) if returns.size else None,
            "return_max": float(returns.max()) if returns.size else None,
            "return_episodes": int(returns.size),
            "episode_steps_mean": stats.sessions.recent_lengths.mean(),
            "policy_lag_mean": lag.mean(),
            "policy_lag_p50": lag.percentile(50),
            "policy_lag_max": lag.percentile(100),
            "batch_environments": ratio("batch_envs", "batches", LOAD_WINDOW_S),
            "batch_padding": None if used_envs is None else 1 - used_envs,
            "inference_ms_p50": milliseconds(latency_s.percentile(50)),
            "inference_ms_p99": milliseconds(latency_s.percentile(99)),
            "inference_run_ms": milliseconds(ratio("run_s", "batches", LOAD_WINDOW_S)),
            "batch_wait_ms": milliseconds(ratio("oldest_s", "batches", LOAD_WINDOW_S)),
            "train_step_ms_p50": milliseconds(stats.training.recent_step_s.percentile(50)),
            "sessions": stats.sessions.connected,
            "environments": stats.sessions.environments,
            "inference_queue_requests": stats.inference.waiting,
            "unroll_queue_columns": stats.training.waiting_unrolls,
            "unroll_queue_capacity": stats.training.capacity_unrolls,
            "unroll_queue_fill": load.queue_fill,
            **{f"busy_{name}": (load.busy or {}).get(name) for name in stats.busy},
            **{f"blocked_{name}": (load.blocked or {}).get(name) for name in stats.busy},
            "wire_cpu": load.grpc,
            "learner_cores": load.learner_cores,
            "machine_cores": load.machine_cores,
            "actor_stepping": load.stepping,
            "actor_held_up": load.backpressure,
            "actor_network": load.network,
            "dollars": counters.dollars,
            "dollars_per_hour": dollars_per_hour,
            "dollars_per_billion_frames": dollars_per_billion_frames(
                counters.dollars, counters.env_frames
            ),
            "eta_s": self.time_left.seconds if self.time_left else None,
            "bottleneck": self.bottleneck.part,
            **stats.replay.as_dict(),
            **stats.gossip.as_dict(),
        }


def measure_load(
    stats: LearnerStats, history: History, cores: float, actors_here: bool, groups: int
) -> Load:
    """Measure what `bottleneck` needs, over the last `LOAD_WINDOW_S`.

    Args:
        stats: What the parts have counted.
        history: The recent totals of `stats`.
        cores: Cores that the learner may use.
        actors_here: The actors run on the learner's machine.
        groups: Streams of an actor.
    """
    rate = history.rate

    def rates(prefix: str) -> dict[str, float]:
        found = {name: rate(f"{prefix}_{name}", LOAD_WINDOW_S) for name in stats.busy}
        return {name: value for name, value in found.items() if value is not None}

    step_s = history.ratio("environment_s", "messages", LOAD_WINDOW_S)
    wait_s = history.ratio("wait_s", "messages", LOAD_WINDOW_S)
    latency_s = history.ratio("latency_s", "requests", LOAD_WINDOW_S)
    queued_s = history.ratio("backpressure_s", "messages", LOAD_WINDOW_S) or 0.0
    stepping_cores = rate("environment_s", LOAD_WINDOW_S)
    stepping = network = None
    if step_s is not None and wait_s is not None and step_s + wait_s > 0:
        stepping = step_s / (step_s + wait_s)
        if latency_s is not None:
            network = max(0.0, wait_s - latency_s - queued_s) / (step_s + wait_s)
    sessions = stats.sessions.connected
    return Load(
        sessions=sessions,
        busy=rates("busy"),
        blocked=rates("blocked"),
        stepping=stepping,
        actor_cores=stepping_cores / max(1.0, sessions / groups)
        if stepping_cores is not None
        else None,
        backpressure=queued_s / (step_s + wait_s) if step_s and wait_s else None,
        network=network,
        queue_fill=history.ratio("fill", "depths", LOAD_WINDOW_S),
        grpc=rate("grpc_cpu_s", LOAD_WINDOW_S),
        cores=cores,
        learner_cores=rate("learner_cpu_s", LOAD_WINDOW_S),
        machine_cores=rate("machine_cpu_s", LOAD_WINDOW_S),
        environment_cores=stepping_cores,
        actors_here=actors_here,
    )


def milliseconds(seconds: float | None) -> float | None:
    """Convert seconds; None stays None."""
    return None if seconds is None else 1000 * seconds
