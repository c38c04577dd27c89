"""The statistics of a learner, and everything that is shown and written of them."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TextIO

from seedbed.config.schema import Experiment
from seedbed.runtime.limits import machine_cpu_seconds, usable_cpus
from seedbed.runtime.metrics import Metric, StatsCollector, gauge, registry_of
from seedbed.telemetry.bottleneck import PARTS, Bottleneck
from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.checkpoints import CheckpointStats, EvaluationStats
from seedbed.telemetry.cost import RunCost, dollars_per_billion_frames
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipStats
from seedbed.telemetry.inference import InferenceStats
from seedbed.telemetry.outputs import Outputs
from seedbed.telemetry.progress_line import progress_line
from seedbed.telemetry.replay import ReplaySourceStats
from seedbed.telemetry.scalars import UserScalars
from seedbed.telemetry.sessions import SessionStats
from seedbed.telemetry.snapshot import (
    FPS_WINDOWS_S,
    RECENT_EPISODES,
    LearnerStats,
    Number,
    Snapshot,
    milliseconds,
)
from seedbed.telemetry.status import (
    LearnersStatus,
    RunStatus,
    describe_threads,
    describe_time_left,
    plain,
    this_process,
)
from seedbed.telemetry.time_left import TimeLeft
from seedbed.telemetry.training import TrainingStats
from seedbed.telemetry.windows import History

THREADS = ("inference", "prefetch", "training")

# Shorter blocking is the ordinary give and take between threads.
_BLOCKED_S = 1.0
# Connected actors that send nothing for so long are reported.
_SILENT_S = 5.0


class Telemetry:
    """Everything that is shown and written while a run goes on.

    The stats objects record, each by its own part of the learner; `tick` shows.

    Attributes:
        counters: Totals over all restarts.
        busy: A clock for each of `THREADS`.
        phase: What the learner is busy with when it is not training, such as "compiling the first
            inference step"; "" or "training" while it trains.
        stop_condition: The stop condition that was met; None before.
        stop_reason: Why the run ended; None before.
        registry: The Prometheus registry, for `MetricsServer`.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = (
        gauge(
            "seedbed_env_fps",
            "Emulator frames a second over the last 10, 60 and 300 seconds.",
            lambda t: {f"{w}s": t.measured(f"env_fps_{w}s") for w in FPS_WINDOWS_S},
            "window",
        ),
        gauge(
            "seedbed_updates_per_second",
            "Updates a second over the last minute.",
            lambda t: t.measured("updates_per_s"),
        ),
        gauge(
            "seedbed_busy_fraction",
            "Fraction of the last 30 seconds that a thread worked.",
            lambda t: {name: t.measured(f"busy_{name}") for name in THREADS},
            "thread",
        ),
        gauge(
            "seedbed_blocked_fraction",
            "Fraction of the last 30 seconds that a thread could not go on because of a neighbour.",
            lambda t: {name: t.measured(f"blocked_{name}") for name in THREADS},
            "thread",
        ),
        gauge(
            "seedbed_actor_stepping_fraction",
            "Fraction of the actors' time spent in environment steps; they wait in the rest. NaN "
            "before the first measurement.",
            lambda t: t.measured("actor_stepping", math.nan),
        ),
        gauge(
            "seedbed_learner_cpu_cores",
            "Cores that the learner's process used.",
            lambda t: t.measured("learner_cores"),
        ),
        gauge(
            "seedbed_bottleneck",
            "Part that sets the pace: 1 for this part, 0 for the others.",
            lambda t: {
                part: float(part == t.numbers.get("bottleneck", "unknown")) for part in PARTS
            },
            "part",
        ),
        gauge(
            "seedbed_user_scalar",
            "Newest values of logging.scalars; a name appears when the function first returns a "
            "value for that name.",
            "user_scalars",
            "name",
        ),
        gauge(
            "seedbed_run_finished",
            "State of the run: 1 once a stop condition is met, 0 before.",
            lambda t: float(t.stop_condition is not None),
        ),
    )

    def __init__(
        self,
        experiment: Experiment,
        run_dir: Path | None,
        counters: Counters,
        *,
        actors_here: bool = False,
        out: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count time and cost.

        Args:
            experiment: The run's settings.
            run_dir: Where files are written; must exist. None writes none.
            counters: Totals over all restarts.
            actors_here: The actors run on this machine, so that they share its CPU.
            out: Where the progress line goes; stderr by default.
            now: Monotonic seconds.

        Raises:
            SeedbedError: CONFIG, when logging.scalars or W&B cannot be loaded.
        """
        self.counters = counters
        self.sessions = SessionStats(counters, experiment.stop.mean_return_episodes)
        self.inference = InferenceStats()
        self.training = TrainingStats(counters)
        self.replay = ReplaySourceStats()
        self.gossip = GossipStats()
        self.checkpoints = CheckpointStats(experiment.learner.checkpoint.every_s)
        self.evaluation = EvaluationStats()
        self.busy = {name: BusyClock() for name in THREADS}
        self.phase = "starting"
        self.stop_condition: str | None = None
        self.stop_reason: str | None = None
        self.cost = RunCost(experiment, counters, now)
        self.outputs = Outputs(experiment, run_dir, out or sys.stderr)
        self.numbers: dict[str, Number] = {}
        self._total_counters: Callable[[], Counters] = lambda: counters
        self._peer_summary: Callable[[], LearnersStatus] = lambda: {}
        self._actors_here = actors_here
        self._experiment = experiment
        self._now = now
        self._cores = usable_cpus()
        self._process = this_process()
        self._history = History()
        self._history.add(now(), self._totals())
        self._messages_at = now()
        self._messages_seen = 0
        self._bottleneck = Bottleneck("unknown", "too little has been measured yet")
        self._time_left: TimeLeft | None = None
        # What the newest tick showed.
        self._last_tick: tuple[object, ...] | None = None
        self._ticking = threading.Lock()
        scalars = experiment.logging.scalars
        self._user = UserScalars(scalars) if scalars else None
        self._collector = StatsCollector(
            counters, self.sessions, self.inference, self.training, self.replay, self.gossip,
            self.checkpoints, self.evaluation, self.cost, self, self.outputs,
        )  # fmt: skip
        self.registry = registry_of(self._collector)

    def measured(self, name: str, nothing: float = 0.0) -> float:
        """Return a number of the newest tick, or `nothing` where none was measured."""
        value = self.numbers.get(name)
        return nothing if value is None else float(value)

    @property
    def user_scalars(self) -> dict[str, float]:
        """Newest values of `logging.scalars`."""
        return dict(self._user.values) if self._user else {}

    def set_phase(self, phase: str) -> None:
        """Set what the learner is busy with; see `phase`."""
        self.phase = phase

    def set_stop_condition(self, condition: str) -> None:
        """Report the stop condition that was met, with both numbers."""
        self.stop_condition = condition

    def set_stop_reason(self, reason: str) -> None:
        """Report why the run ended, before the last `tick`."""
        self.stop_reason = reason

    def join_learners(
        self,
        total_counters: Callable[[], Counters],
        peer_summary: Callable[[], LearnersStatus],
        learners_here: int,
    ) -> None:
        """Report as one of several learners.

        Args:
            total_counters: Returns the counters of all learners.
            peer_summary: Returns the learners' part of the status.
            learners_here: Learners that share the cost of this machine.
        """
        self._total_counters, self._peer_summary = total_counters, peer_summary
        self.cost.dollars_per_hour /= learners_here

    def account(self) -> None:
        """Bring `counters.seconds` and `counters.dollars` up to date. `tick` calls this too."""
        self.cost.account()

    def tick(self) -> None:
        """Measure, and write everything that is written each `logging.interval_s`.

        An output that cannot be written does not stop the run; see `Outputs`.
        """
        with self._ticking:
            self.account()
            self._measure()
            self._last_tick = self._shown()
            row: dict[str, Number] = {**self.numbers, **self.training.take_mean_scalars()}
            if self._user:
                row |= {f"user_{name}": x for name, x in self._user.update(row).items()}
            parts = progress_line(self.numbers, self._bottleneck, self._time_left, self.waiting())
            self.outputs.write(row, parts, self._collector.values, self.status)

    def waiting(self) -> str | None:
        """Return what the run waits for, in words; None while it goes on."""
        sessions, training = self.sessions.connected, self.training
        if self.stop_reason:
            return None
        if self.phase not in ("", "training"):
            return self.phase
        if not sessions:
            return "no actors are connected"
        if self.gossip.waiting:
            return self.gossip.waiting
        if self.replay.filling:
            return self.replay.filling
        for name, clock in self.busy.items():
            state, for_s = clock.state
            if state == "blocked" and for_s >= _BLOCKED_S:
                return f"{name} for {for_s:.0f} s: {clock.waiting_for or 'it did not say why'}"
        silent_s = self._now() - self._messages_at
        if self.sessions.messages == self._messages_seen and silent_s > _SILENT_S:
            return f"no step has arrived for {silent_s:.0f} s from {sessions} sessions"
        full = 0 < training.capacity_unrolls <= training.waiting_unrolls
        if full and self._bottleneck.part == "training":
            return "unroll queue full: training is behind"
        return None

    def status(self) -> RunStatus:
        """Return the object of status.json: present counters, rates of the last tick."""
        waiting, checkpoints = self.waiting(), self.checkpoints
        status: RunStatus = {
            "name": self._experiment.name,
            "environment": self._experiment.environment.id,
            "agent": self._experiment.agent,
            "state": "finished" if self.stop_reason else "waiting" if waiting else "training",
            "waiting_for": waiting,
            "over": self.stop_condition,
            "stop_reason": self.stop_reason,
            "time": time.time(),
            "interval_s": self._experiment.logging.interval_s,
            "process": self._process,
            "counters": self.counters.to_json(),
            "numbers": self.numbers,
            "scalars": self.training.scalars,
            "user_scalars": self.user_scalars,
            "bottleneck": {
                "part": self._bottleneck.part,
                "sentence": self._bottleneck.sentence,
            },
            "threads": describe_threads(self.busy, self.numbers),
            "eta": describe_time_left(self._time_left, self.cost.dollars_per_hour),
            "stop": self._experiment.stop.model_dump(),
            "checkpoint": {
                "age_s": checkpoints.age_s,
                "every_s": checkpoints.interval_s,
                "seconds": checkpoints.seconds,
                "bytes": checkpoints.bytes,
                "written": checkpoints.written,
                "failed": checkpoints.failed,
            },
            "evaluation": self.evaluation.newest or None,
            "learners": self._peer_summary(),
            "discarded_by_reason": dict(self.sessions.discarded_by_reason),
            "stream_errors": dict(self.sessions.stream_errors),
            "failing_outputs": sorted(self.outputs.failing),
        }
        return plain(status)  # type: ignore[no-any-return]

    def summary(self) -> dict[str, Any]:
        """Return the object that ends a run, on stdout. None, never 0, where there is no data."""
        self.account()
        counters = self.counters
        returns = self.sessions.recent_returns.values(RECENT_EPISODES)
        latency_s, training = self.inference.recent_latency_s, self.training
        summary = {
            **counters.to_json(),
            "env_fps": counters.env_frames / counters.seconds if counters.seconds else None,
            "mean_return": returns.mean() if returns.size else None,
            "mean_return_episodes": returns.size,
            "policy_lag_p50": training.recent_lag.percentile(50),
            "inference_ms_p50": milliseconds(latency_s.percentile(50)),
            "inference_ms_p99": milliseconds(latency_s.percentile(99)),
            "batch_environments": self.inference.mean_batch_envs,
            "train_step_ms_p50": milliseconds(training.recent_step_s.percentile(50)),
            "dollars_per_billion_frames": dollars_per_billion_frames(
                counters.dollars, counters.env_frames
            ),
            "bottleneck": self._bottleneck.part,
            "evaluation": self.evaluation.newest or None,
            "stop_reason": self.stop_reason,
        }
        return plain(summary)  # type: ignore[no-any-return]

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint stores besides the counters."""
        return {
            "recent_returns": self.sessions.recent_returns.values().tolist(),
            "recent_lengths": self.sessions.recent_lengths.values().tolist(),
            "evaluation": plain(self.evaluation.newest),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the output of `to_json`. The owner of `counters` restores them."""
        self.sessions.recent_returns.extend(saved.get("recent_returns", []))
        self.sessions.recent_lengths.extend(saved.get("recent_lengths", []))
        self.evaluation.restore(saved.get("evaluation", {}))

    def close(self) -> None:
        """Write once more, if anything is new, and close the files."""
        if self._last_tick != self._shown():
            self.tick()
        self.outputs.close()

    def _totals(self) -> dict[str, float]:
        totals = {
            **self.sessions.totals(),
            **self.inference.totals(),
            **self.training.totals(),
            "learner_cpu_s": time.process_time(),
        }
        for name, clock in self.busy.items():
            totals[f"busy_{name}"], totals[f"blocked_{name}"] = clock.totals()
        machine = machine_cpu_seconds()
        return totals if machine is None else {**totals, "machine_cpu_s": machine}

    def _measure(self) -> None:
        now = self._now()
        if self.sessions.messages != self._messages_seen:
            self._messages_seen, self._messages_at = self.sessions.messages, now
        self._history.add(now, self._totals())
        stats = LearnerStats(
            self.counters, self.sessions, self.inference, self.training, self.replay, self.gossip,
            self.busy,
        )  # fmt: skip
        snapshot = Snapshot(
            self._experiment,
            stats,
            self._history,
            total=self._total_counters(),
            cores=self._cores,
            dollars_per_hour=self.cost.dollars_per_hour,
            actors_here=self._actors_here,
        )
        # An ended run keeps what held it back, because its actors have left.
        if self.stop_reason is None or self._bottleneck.part == "unknown":
            self._bottleneck = snapshot.bottleneck
        self.numbers = {**snapshot.numbers, "bottleneck": self._bottleneck.part}
        self._time_left = snapshot.time_left

    def _shown(self) -> tuple[object, ...]:
        counters = self.counters
        return self.stop_reason, counters.env_frames, counters.updates, self.evaluation.count


LEARNER_METRICS = tuple(
    metric
    for part in (
        Counters, SessionStats, InferenceStats, TrainingStats, ReplaySourceStats, GossipStats,
        CheckpointStats, EvaluationStats, RunCost, Telemetry, Outputs,
    )
    for metric in part.METRICS
)  # fmt: skip
