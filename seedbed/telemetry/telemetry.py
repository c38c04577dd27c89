"""The one object through which a learner says what it does."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from seedbed.config.schema import Experiment
from seedbed.runtime.limits import usable_cpus
from seedbed.runtime.metrics import TableCollector, registry_of
from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.cost import dollars_per_billion_frames, dollars_per_hour
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.eta import Eta
from seedbed.telemetry.events import EventFile, MetricScalars
from seedbed.telemetry.live_line import LiveLine, live_line
from seedbed.telemetry.meter import Meter
from seedbed.telemetry.metrics import METRICS, read_metrics
from seedbed.telemetry.numbers import RECENT_EPISODES, Number, take_numbers
from seedbed.telemetry.progress import ProgressFile
from seedbed.telemetry.recorder import Recorder
from seedbed.telemetry.scalars import UserScalars
from seedbed.telemetry.status import (
    describe_bottleneck,
    describe_end,
    describe_threads,
    plain,
    this_process,
    write_status,
)
from seedbed.telemetry.weights_and_biases import WandbRun
from seedbed.telemetry.windows import History

log = logging.getLogger(__name__)

_BLOCKED_S = 1.0  # shorter blocking is the ordinary give and take between threads
_SILENT_S = 5.0  # connected actors that send nothing for so long are worth a word


class Telemetry(Recorder):
    """Everything that is shown and written while a run goes on.

    The `on_*` and `set_*` methods record; `tick` shows. See `Recorder` for who may call what.

    Attributes:
        phase: what the learner is busy with when it is not training, such as "compiling the first
            inference step"; "" or "training" while it trains. The learner sets it.
        stop_reason: why the run ended; the learner sets it before the last `tick`.
        registry: the Prometheus registry, for `MetricsServer`.
    """

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
            run_dir: where files are written; it must exist. None writes none.
            actors_here: the actors run on this machine, so that CPU is shared with them.
            out: where the live line goes; stderr by default.

        Raises:
            SeedbedError: CONFIG, when logging.scalars or W&B cannot be loaded.
        """
        super().__init__(counters, experiment.stop.mean_return_episodes)
        self.phase = "starting"
        self.team: Callable[[], dict[str, Any]] = dict  # how the learners are; empty of one
        self.stop_reason: str | None = None
        self.actors_here = actors_here
        self.dollars_per_hour = dollars_per_hour(experiment.cost)
        self.budget_dollars = experiment.stop.dollars
        self.checkpoint_interval_s = experiment.learner.checkpoint.every_s
        self._meter = Meter(experiment.cost.meter) if experiment.cost.meter else None
        self._experiment = experiment
        self._run_dir = run_dir
        self._now = now
        self._cores = usable_cpus()
        self._process = this_process()
        self._history = History()
        self._history.add(now(), self.totals())
        self._accounted_at = self._messages_at = now()
        self._messages_seen = 0
        self._numbers: dict[str, Number] = {}
        self._limit = Bottleneck("unknown", "too little has been measured yet")
        self._last_tick: tuple[object, ...] | None = None  # what the newest tick showed
        self._eta: Eta | None = None
        self._output_errors: Counter[str] = Counter()
        self._failing: set[str] = set()
        self._ticking = threading.Lock()
        logging_ = experiment.logging
        self._user = UserScalars(logging_.scalars) if logging_.scalars else None
        self._wandb = WandbRun(experiment, run_dir) if logging_.wandb.enabled else None
        self.registry = registry_of(TableCollector(METRICS, self._read_metrics))
        self._scalars = MetricScalars()
        self._line = LiveLine(out or sys.stderr)
        self._progress = ProgressFile(run_dir / "progress.csv") if run_dir else None
        self._events: EventFile | None = None  # opened at the first tick: counters are restored

    def account(self) -> None:
        """Bring `counters.seconds` and `counters.dollars` up to now. `tick` does it too."""
        with self._lock:
            now = self._now()
            passed = max(0.0, now - self._accounted_at)
            self._accounted_at = now
            self.counters.seconds += passed
            self.counters.dollars += passed / 3600 * self.dollars_per_hour
            reading = self._meter.reading if self._meter else None
            if reading is not None:  # it prices the actors too, and while no learner ran
                self.dollars_per_hour = reading.dollars_per_hour
                self.counters.dollars = max(self.counters.dollars, reading.dollars)

    def tick(self) -> None:
        """Measure, and write everything that is written each `logging.interval_s`.

        An output that cannot be written is logged when it begins to fail, counted, and tried
        again at the next tick; it does not stop the run.
        """
        with self._ticking:
            self.account()
            self._measure()
            self._last_tick = self._shown()
            row: dict[str, Number] = {**self._numbers, **self.take_mean_scalars()}
            if self._user:
                row |= {f"user_{name}": x for name, x in self._user.update(row).items()}
            parts = live_line(self._numbers, self._limit, self._eta, self.waiting())
            self._guarded("live line", partial(self._line.show, parts))
            if self._progress:
                self._guarded("progress.csv", partial(self._progress.append, row))
            if self._run_dir:
                self._guarded("tensorboard", self._write_events)
                self._guarded("status.json", self._write_status)
            if self._wandb:
                self._guarded("wandb", partial(self._wandb.log, row))

    def waiting(self) -> str | None:
        """What the run waits for right now, in words; None while it goes on."""
        if self.stop_reason:
            return None
        if self.phase not in ("", "training"):
            return self.phase
        if not self.sessions:
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
        if self._messages == self._messages_seen and silent_s > _SILENT_S:
            return f"no step has arrived for {silent_s:.0f} s from {self.sessions} sessions"
        full = 0 < self.unroll_capacity <= self.unroll_columns
        if full and self._limit.word == "training":
            return "unroll queue full: training is behind"
        return None

    def status(self) -> dict[str, Any]:
        """The object of status.json: counters of now, rates of the last tick."""
        age = None if self.checkpoint_at is None else time.monotonic() - self.checkpoint_at
        waiting = self.waiting()
        state = "finished" if self.stop_reason else "waiting" if waiting else "training"
        status = {
            "name": self._experiment.name,
            "environment": self._experiment.environment.id,
            "agent": self._experiment.agent,
            "state": state,
            "waiting_for": waiting,
            "over": self.over,
            "stop_reason": self.stop_reason,
            "time": time.time(),
            "interval_s": self._experiment.logging.interval_s,
            "process": self._process,
            "counters": self.counters.to_json(),
            "numbers": self._numbers,
            "scalars": self.scalars,
            "user_scalars": self._user.values if self._user else {},
            "bottleneck": describe_bottleneck(self._limit),
            "threads": describe_threads(self.busy, self._numbers),
            "eta": describe_end(self._eta, self.dollars_per_hour),
            "stop": self._experiment.stop.model_dump(),
            "checkpoint": {
                "age_s": age,
                "every_s": self._experiment.learner.checkpoint.every_s,
                "seconds": self.checkpoint_s,
                "bytes": self.checkpoint_bytes,
                "written": self.checkpoints,
                "failed": self.checkpoint_failures,
            },
            "evaluation": self.evaluation or None,
            "learners": self.team(),
            "discarded_by_reason": dict(self.discarded_by_reason),
            "stream_errors": dict(self.stream_errors),
            "failing_outputs": sorted(self._failing),
        }
        return plain(status)  # type: ignore[no-any-return]

    def summary(self) -> dict[str, Any]:
        """The object that ends a run, on stdout. None, never 0, where there is no data."""
        self.account()
        counters = self.counters
        returns = self.recent_returns.values(RECENT_EPISODES)
        latency_ms = [self.recent_latency_s.percentile(percent) for percent in (50, 99)]
        p50_ms, p99_ms = (None if value is None else 1000 * value for value in latency_ms)
        summary = {
            **counters.to_json(),
            "env_fps": counters.env_frames / counters.seconds if counters.seconds else None,
            "mean_return": returns.mean() if returns.size else None,
            "mean_return_episodes": returns.size,
            "policy_lag_p50": self.recent_lag.percentile(50),
            "inference_ms_p50": p50_ms,
            "inference_ms_p99": p99_ms,
            "batch_environments": self._rows / self._batches if self._batches else None,
            "train_step_ms_p50": _thousand(self.recent_step_s.percentile(50)),
            "dollars_per_billion_frames": dollars_per_billion_frames(
                counters.dollars, counters.env_frames
            ),
            "bottleneck": self._limit.word,
            "evaluation": self.evaluation or None,
            "stop_reason": self.stop_reason,
        }
        return plain(summary)  # type: ignore[no-any-return]

    def extra_state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the counters, as JSON."""
        return {
            "recent_returns": self.recent_returns.values().tolist(),
            "recent_lengths": self.recent_lengths.values().tolist(),
            "evaluation": plain(self.evaluation),
        }

    def restore(self, extra: Mapping[str, Any]) -> None:
        """Take over `extra_state`. `counters` are restored by whoever owns them."""
        self.recent_returns.extend(extra.get("recent_returns", []))
        self.recent_lengths.extend(extra.get("recent_lengths", []))
        self.evaluation = dict(extra.get("evaluation", {}))

    def close(self) -> None:
        """Write once more, if anything is new, and close the files. Set `stop_reason` before."""
        if self._last_tick != self._shown():
            self.tick()
        self._line.close()
        if self._events:
            self._guarded("tensorboard", self._events.close)
        if self._wandb:
            self._guarded("wandb", self._wandb.close)

    def _measure(self) -> None:
        now = self._now()
        if self._messages != self._messages_seen:
            self._messages_seen, self._messages_at = self._messages, now
        self._history.add(now, self.totals())
        self._numbers, limit, self._eta = take_numbers(
            self._experiment,
            self,
            self._history,
            cores=self._cores,
            dollars_per_hour=self.dollars_per_hour,
            actors_here=self.actors_here,
        )
        if self.stop_reason is None or self._limit.word == "unknown":
            self._limit = limit  # an ended run keeps what held it back; its actors have left
        self._numbers["bottleneck"] = self._limit.word

    def _shown(self) -> tuple[object, ...]:
        counters = self.counters
        return self.stop_reason, counters.env_frames, counters.updates, self.evaluations

    def _read_metrics(self) -> Mapping[str, Any]:
        numbers = self._numbers or {"dollars_per_hour": self.dollars_per_hour}
        return read_metrics(
            self, numbers, self._user.values if self._user else {}, self._output_errors
        )

    def _write_events(self) -> None:
        assert self._run_dir
        frames = self.counters.env_frames
        if self._events is None:
            self._events = EventFile(self._run_dir / "tensorboard", frames)
        scalars = self._scalars.take(self._read_metrics())
        for name in ("inference_ms_p50", "inference_ms_p99", "policy_lag_p50", "train_step_ms_p50"):
            value = self._numbers[name]
            if isinstance(value, float):
                scalars[f"seedbed_recent/{name}"] = value
        try:
            self._events.add(frames, scalars)
        except OSError:
            self._events = None  # half an event may be there: go on in a new file
            raise

    def _write_status(self) -> None:
        assert self._run_dir
        write_status(self._run_dir, self.status())

    def _guarded(self, output: str, write: Callable[[], object]) -> None:
        try:
            write()
        except Exception as error:
            self._output_errors[output] += 1
            if output not in self._failing:
                log.warning(
                    "cannot write %s (%s: %s): training goes on without, and tries again each "
                    "interval",
                    output,
                    type(error).__name__,
                    error,
                )
            self._failing.add(output)
        else:
            if output in self._failing:
                log.warning("%s is written again", output)
            self._failing.discard(output)


def _thousand(value: float | None) -> float | None:
    return None if value is None else 1000 * value
