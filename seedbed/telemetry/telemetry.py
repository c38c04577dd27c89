"""The statistics of a learner, and everything that is shown and written of them."""

import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TextIO

from seedbed.backends.roles import SHARED
from seedbed.config.schema import Experiment
from seedbed.runtime.formats import Number
from seedbed.runtime.limits import machine_cpu_seconds, usable_cpus
from seedbed.runtime.metrics import Metric, StatsRegistry, Value, documented, gauge
from seedbed.runtime.text import counted
from seedbed.runtime.tokens import Tokens
from seedbed.telemetry.bottleneck import PARTS, Bottleneck
from seedbed.telemetry.busy import THREADS, BusyClock
from seedbed.telemetry.checkpoints import CheckpointStats, EvaluationStats
from seedbed.telemetry.cost import RunCost, charged_sizes
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.curves import Curves
from seedbed.telemetry.energy import EnergyStats
from seedbed.telemetry.gossip import GossipStats
from seedbed.telemetry.inference import InferenceStats
from seedbed.telemetry.network import NetworkStats
from seedbed.telemetry.outputs import Outputs
from seedbed.telemetry.progress_line import progress_line
from seedbed.telemetry.replay import ReplaySourceStats
from seedbed.telemetry.scalars import UserScalars
from seedbed.telemetry.sessions import SessionStats
from seedbed.telemetry.snapshot import take_snapshot
from seedbed.telemetry.status import (
    LearnersStatus,
    ProvenanceStatus,
    RunStatus,
    describe_threads,
    plain,
    this_process,
)
from seedbed.telemetry.summary import summarize
from seedbed.telemetry.time_left import TimeLeft
from seedbed.telemetry.training import TrainingStats
from seedbed.telemetry.windows import FPS_WINDOWS_S, LOAD_WINDOW_S, History

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
        numbers: The newest row of progress.csv; {} before the first tick.
        measured.env_fps: Emulator frames a second over the last 10, 60 and 300 seconds.
        numbers.updates_per_second: Updates a second over the last minute.
        measured.busy_fraction: Fraction of the last 30 seconds that a thread worked.
        measured.blocked_fraction: Fraction of the last 30 seconds that a thread waited for a
            neighbour.
        numbers.actor_stepping_fraction: Fraction of the actors' time spent in environment steps;
            they wait in the rest. NaN before the first measurement.
        numbers.learner_cpu_cores: Cores that the learner's process used.
        is_bottleneck: Part that sets the pace: 1 for this part, 0 for the others.
        user.values: Newest values of logging.scalars; a name appears when the function first
            returns a value for that name.
        is_finished: State of the run: 1 once a stop condition is met, 0 before.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_env_fps", "measured.env_fps", ("window",), tag="speed"),
        gauge(
            "seedbed_updates_per_second", "numbers.updates_per_second", nothing=0.0, tag="speed"
        ),
        gauge("seedbed_busy_fraction", "measured.busy_fraction", ("thread",)),
        gauge("seedbed_blocked_fraction", "measured.blocked_fraction", ("thread",)),
        gauge("seedbed_actor_stepping_fraction", "numbers.actor_stepping_fraction"),
        gauge("seedbed_learner_cpu_cores", "numbers.learner_cpu_cores", nothing=0.0),
        gauge("seedbed_bottleneck", "is_bottleneck", ("part",)),
        gauge("seedbed_user_scalar", "user.values", ("name",), tag="user"),
        gauge("seedbed_run_finished", "is_finished", tag=None),
    )  # fmt: skip

    def __init__(
        self,
        experiment: Experiment,
        run_dir: Path | None,
        counters: Counters,
        *,
        actors_here: bool = False,
        tokens: Tokens | None = None,
        out: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count time and cost.

        Args:
            experiment: The run's settings.
            run_dir: Where files are written; must exist. None writes none.
            counters: Totals over all restarts.
            actors_here: The actors run on this machine, so that they share its CPU.
            tokens: Tokens of this process, for the cost meter; None: none is sent.
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
        self.network = NetworkStats(self.gossip, self.replay)
        self.checkpoints = CheckpointStats(experiment.learner.checkpoint.every_s, run_dir)
        self.evaluation = EvaluationStats()
        self.busy = {name: BusyClock() for name in THREADS}
        self._inference_clocks = [self.busy["inference"]]  # of each device that acts
        self.split = SHARED
        self.phase = "starting"
        self.environment_wait: Callable[[], str] = str  # a call that takes long, in words
        self.stop_condition: str | None = None
        self.stop_reason: str | None = None
        self.provenance: ProvenanceStatus | None = None
        self.cost = RunCost(experiment, counters, now, tokens)
        self.energy = EnergyStats(experiment.cost.cpu_watts)
        self._run_dir = run_dir
        self.outputs = Outputs(experiment, run_dir, out or sys.stderr, now)
        self._curves = Curves()
        self.numbers: dict[str, Number] = {}
        self.user = UserScalars(experiment.logging.scalars)
        self.experiment = experiment
        self.actors_here = actors_here
        self.cores = usable_cpus()
        self.history = History()
        # Of all hosts of this learner, and of all learners.
        self.whole_counters: Callable[[], Counters] = lambda: counters
        self.whole_returns: Callable[[int], tuple[float, int]] = self.own_returns
        self.total_counters: Callable[[], Counters] = lambda: counters
        self._others_done: Callable[[], dict[str, float]] = dict
        self.late_hosts = ""  # in words
        self._peer_summary: Callable[[], LearnersStatus] = lambda: {}
        self._now = now
        self._process = this_process()
        self.history.add(now(), self._totals())
        self._messages_at = now()
        self._messages_seen = 0
        # The first look after a compilation; None during one, whose waits tell nothing of a pace.
        self._steady_at: float | None = -math.inf
        self._bottleneck = Bottleneck("unknown", "too little has been measured yet")
        self._time_left: TimeLeft | None = None
        # What the newest tick showed.
        self._last_tick: tuple[object, ...] | None = None
        self._ticking = threading.Lock()
        self.registry = StatsRegistry(
            counters, self.sessions, self.inference, self.training, self.replay, self.gossip,
            self.network, self.checkpoints, self.evaluation, self.cost, self.energy, self,
            self.outputs,
        )  # fmt: skip

    @property
    def measured(self) -> dict[str, dict[str, float]]:
        """Numbers of the newest tick that a metric has by its label, 0 where none was measured."""
        labels = {
            "env_fps": [f"{window}s" for window in FPS_WINDOWS_S],
            "busy_fraction": THREADS,
            "blocked_fraction": THREADS,
        }
        return {
            stem: {label: float(self.numbers.get(f"{stem}_{label}") or 0.0) for label in values}
            for stem, values in labels.items()
        }

    @property
    def is_bottleneck(self) -> dict[str, bool]:
        """Part that sets the pace: true for this part, false for the others."""
        return {part: part == self._bottleneck.part for part in PARTS}

    @property
    def left_env_frames(self) -> int:
        """Emulator frames of learners that an earlier start had, and this one has not."""
        return self._peer_summary().get("left_env_frames", 0)

    @property
    def is_finished(self) -> bool:
        """State of the run: true once a stop condition is met."""
        return self.stop_condition is not None

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
        self.total_counters, self._peer_summary = total_counters, peer_summary
        self.cost.dollars_per_hour /= learners_here

    def own_returns(self, episodes: int) -> tuple[float, int]:
        """Return the sum and the number of the newest returns of this process.

        Args:
            episodes: The most to count.
        """
        returns = self.sessions.recent_returns.values(episodes)
        return float(returns.sum()), int(returns.size)

    def join_hosts(
        self,
        total: Callable[[], Counters],
        returns: Callable[[int], tuple[float, int]],
        others_done: Callable[[], dict[str, float]],
        host: int,
        machines: int,
    ) -> None:
        """Report as one of several hosts of a learner, the counts of all of them.

        Args:
            total: Returns the counts of the whole learner.
            returns: As `own_returns`, of the whole learner.
            others_done: As `done`, of the other hosts together.
            host: Number of this host. The first one is charged for all.
            machines: Machines that the hosts take.
        """
        self.whole_counters, self.whole_returns = total, returns
        self.total_counters, self._others_done = total, others_done
        self.cost.dollars_per_hour *= 0 if host else machines

    def tick(self) -> None:
        """Measure, and write everything that is written each `logging.interval_s`.

        An output that cannot be written does not stop the run; see `Outputs`.
        """
        with self._ticking:
            self.cost.account()
            self._measure()
            self._last_tick = self._shown()
            scalars = self.training.take_mean_scalars()
            # A scalar of an agent takes no column of what is measured, such as the returns.
            named = {f"agent_{n}" if n in self.numbers else n: x for n, x in scalars.items()}
            row: dict[str, Number] = {**self.numbers, **named}
            row |= {f"user_{name}": x for name, x in self.user.update(row).items()}
            parts = progress_line(
                self.numbers,
                self._bottleneck,
                self._time_left,
                self.waiting(),
                self.cost.is_over,
            )
            self.outputs.write(
                row, parts, lambda: self._curves.take(self._values(scalars), self.numbers),
                self.status,
            )  # fmt: skip

    def _values(self, scalars: Mapping[str, float]) -> list[tuple[Metric, Value]]:
        """Return the value of every metric, but the means of this interval for the scalars."""
        means: dict[str, Value] = {
            "seedbed_loss": scalars.get("loss", math.nan),
            "seedbed_training_scalar": {n: x for n, x in scalars.items() if n != "loss"},
        }
        found = self.registry.values() | means
        return [(metric, found[metric.name]) for metric, _ in self.registry.metrics]

    def inference_clock(self, acting: int) -> BusyClock:
        """Return the clock of a new inference thread.

        Args:
            acting: number of the device that acts, from 0; the numbers come in order.
        """
        if acting == len(self._inference_clocks):
            self._inference_clocks.append(BusyClock())
        return self._inference_clocks[acting]

    def waiting(self) -> str | None:
        """Return what the run waits for, in words; None while it goes on."""
        sessions, training = self.sessions.connected, self.training
        if self.stop_reason:
            return None
        if self.evaluation.is_last:
            return f"the last evaluation: {self.evaluation.progress or 'starting'}"
        # While no batch comes, the training thread is about to compile.
        if (call := self.environment_wait()) and not self.phase.startswith("ending"):
            return call
        if self.phase not in ("", "training"):
            return self.phase
        if not sessions:
            return "no actors are connected"
        if self.late_hosts or self.gossip.waiting:
            return self.late_hosts or self.gossip.waiting
        if self.replay.filling:
            return self.replay.filling
        # A host that waits for another one holds up all that comes before training.
        for name, clock in reversed(self.busy.items()):
            state, for_s = clock.state
            if state == "blocked" and for_s >= _BLOCKED_S:
                return f"{name} for {for_s:.0f} s: {clock.waiting_for or 'it did not say why'}"
        silent_s = self._now() - self._messages_at
        if self.sessions.messages == self._messages_seen and silent_s > _SILENT_S:
            told = f"no step has arrived for {silent_s:.0f} s from {counted(sessions, 'session')}"
            begins = "; environments may still begin (resets, actor.decorrelate_steps)"
            return told + begins * (self.sessions.messages == 0)
        full = 0 < training.capacity_unrolls <= training.waiting_unrolls
        if full and self._bottleneck.part == "training":
            return "unroll queue full: training is behind"
        return None

    def status(self) -> RunStatus:
        """Return the object of status.json: present counters, rates of the last tick."""
        waiting = self.waiting()
        status: RunStatus = {
            "name": self.experiment.name,
            "run_dir": None if self._run_dir is None else str(self._run_dir),
            "environment": self.experiment.environment.id,
            "agent": self.experiment.agent,
            "state": self._state(waiting),
            "waiting_for": waiting,
            "over": self.stop_condition,
            "stop_reason": self.stop_reason,
            "time": time.time(),
            "interval_s": self.experiment.logging.interval_s,
            "process": self._process,
            "counters": self.whole_counters().to_json(),
            "resumed_dollars": self.cost.resumed_dollars,
            "bill": self.cost.bill,
            "earlier_dollars": self.cost.earlier_dollars,
            "charged": charged_sizes(self.experiment.cost),
            "numbers": self.numbers,
            "scalars": self.training.scalars,
            "user_scalars": dict(self.user.values),
            "bottleneck": self._bottleneck._asdict(),
            "threads": describe_threads(self.busy),
            "eta": None,
            "stop": self.experiment.stop.model_dump(),
            "evaluation": self.evaluation.newest or None,
            "learners": self._peer_summary(),
            "provenance": self.provenance,
            "network_bytes": {" ".join(key): n for key, n in self.network.bytes.items()},
            "policy_lag_by_step": self.training.lag_by_step(),
            "discarded_by_reason": dict(self.sessions.discarded_by_reason),
            "stream_errors": dict(self.sessions.stream_errors),
            "failing_outputs": sorted(self.outputs.failing),
        }
        if left := self._time_left:
            dollars = left.seconds / 3600 * self.cost.dollars_per_hour
            status["eta"] = {
                "seconds": left.seconds,
                "condition": left.condition,
                "dollars": dollars,
            }
        return plain(status)  # type: ignore[no-any-return]

    def _state(self, waiting: str | None) -> str:
        if self.stop_reason:
            return "finished"
        if self.evaluation.is_last:
            return "evaluating"
        return "waiting" if waiting else "training"

    def summary(self) -> dict[str, Any]:
        """Return the object that ends a run, on stdout. None, never 0, where there is no data."""
        self.cost.account()
        return summarize(self, self.whole_counters(), self._bottleneck.part)

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint stores besides the counters."""
        return {
            "recent_returns": self.sessions.recent_returns.values().tolist(),
            "recent_lengths": self.sessions.recent_lengths.values().tolist(),
            "exploration": self.sessions.exploration,
            **self.cost.to_json(),
            "evaluation": plain(self.evaluation.newest),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the output of `to_json`. The owner of `counters` restores them."""
        self.sessions.recent_returns.extend(saved.get("recent_returns", []))
        self.sessions.recent_lengths.extend(saved.get("recent_lengths", []))
        self.sessions.on_exploration(saved.get("exploration"))
        self.evaluation.newest = dict(saved.get("evaluation", {}))
        self.cost.resume(saved)

    def close(self) -> None:
        """Write once more, if anything is new, and close the files."""
        if self._last_tick != self._shown():
            self.tick()
        self.outputs.close()

    def done(self) -> dict[str, float]:
        """Return the frames that this process has stepped and trained on, for rates."""
        stepped = self.sessions.totals()["env_frames"]
        return {"env_frames": stepped, "trained_frames": self.training.totals()["trained_frames"]}

    def _totals(self) -> dict[str, float]:
        totals = {
            **self.sessions.totals(),
            **self.inference.totals(),
            **self.training.totals(),
            **self.energy.totals(),
            "learner_cpu_s": time.process_time(),
        }
        for name, count in self._others_done().items():
            totals[name] += count
        for name, clock in self.busy.items():
            totals[f"busy_{name}"], totals[f"blocked_{name}"] = clock.totals()
        devices = [clock.totals() for clock in self._inference_clocks]
        totals["busy_inference"] = sum(each.busy_s for each in devices) / len(devices)
        machine = machine_cpu_seconds()
        return totals if machine is None else {**totals, "machine_cpu_s": machine}

    @property
    def steady_s(self) -> float:
        """Seconds, up to the window of a load, since nothing has been compiled; 0 while it is."""
        since = self._steady_at
        return 0.0 if since is None else min(LOAD_WINDOW_S, self._now() - since)

    def _measure(self) -> None:
        now = self._now()
        if self.sessions.messages != self._messages_seen:
            self._messages_seen, self._messages_at = self.sessions.messages, now
        self.history.add(now, self._totals())
        if self.phase.startswith("compiling"):
            self._steady_at = None
        elif self._steady_at is None:
            self._steady_at = now
        snapshot = take_snapshot(self, self.total_counters())
        # An ended run keeps what held it back, because its actors have left.
        if self.stop_reason is None or self._bottleneck.part == "unknown":
            self._bottleneck = snapshot.bottleneck
        self.numbers = {**snapshot.numbers, "bottleneck": self._bottleneck.part}
        self._time_left = snapshot.time_left

    def _shown(self) -> tuple[object, ...]:
        counters = self.counters
        return self.stop_reason, counters.env_frames, counters.updates, self.evaluation.count
