"""What the learner's threads report while they run. Everything here is cheap."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.limits import machine_cpu_seconds
from seedbed.runtime.metrics import LATENCY_BOUNDS_S, Histogram
from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipNumbers
from seedbed.telemetry.replay import ReplayNumbers
from seedbed.telemetry.windows import RecentValues

THREADS = ("inference", "prefetch", "training")

_POSITIVE_RETURNS = (
    *(1, 2, 5, 10, 15, 18, 20, 21, 30, 50, 100, 200, 300, 400, 500, 1_000, 2_000, 5_000),
    *(10_000, 20_000, 50_000, 100_000, 1_000_000),
)
RETURN_BOUNDS = (*(-bound for bound in reversed(_POSITIVE_RETURNS)), 0, *_POSITIVE_RETURNS)
LENGTH_BOUNDS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 27_000, 50_000, 108_000)
BATCH_BOUNDS = tuple(2**power for power in range(13))
LAG_BOUNDS = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500)

_FEW = 8  # values that are cheaper one by one than in NumPy


class Recorder:
    """Raw counts, histograms and recent values of one learner process.

    `on_step` and `on_episodes` belong to the event loop's thread and take no lock that is held
    for long; every other method may be called from any thread.

    Attributes:
        counters: totals over all restarts.
        busy: a clock for each of `THREADS`.
    """

    def __init__(self, counters: Counters, mean_return_episodes: int) -> None:
        self.counters = counters
        self.busy = {name: BusyClock() for name in THREADS}
        self.returns = Histogram(RETURN_BOUNDS)
        self.lengths = Histogram(LENGTH_BOUNDS)
        self.latency_s = Histogram(LATENCY_BOUNDS_S)
        self.batch_rows = Histogram(BATCH_BOUNDS)
        self.lag = Histogram(LAG_BOUNDS)
        self.step_s = Histogram(LATENCY_BOUNDS_S)
        self.recent_returns = RecentValues(max(100, mean_return_episodes))
        self.recent_lengths = RecentValues(100)
        self.recent_latency_s = RecentValues(8192)
        self.recent_lag = RecentValues(4096)
        self.recent_step_s = RecentValues(256)
        self.sessions = self.environments = 0
        self.inference_requests = self.unroll_columns = self.unroll_capacity = 0
        self.scalars: dict[str, float] = {}  # of the newest update
        self.stream_errors: Counter[str] = Counter()
        self.discarded_by_reason: Counter[str] = Counter()
        self.checkpoints = self.checkpoint_failures = 0
        self.checkpoint_s = self.checkpoint_bytes = float("nan")
        self.checkpoint_at: float | None = None  # monotonic
        self.replay = ReplayNumbers()
        self.gossip = GossipNumbers()
        self.together: Callable[[], Counters] = lambda: counters  # of all learners
        self.over: str | None = None  # the stop condition that was met
        self.budget_dollars = self.checkpoint_interval_s = 0.0
        self.evaluations = 0
        self.evaluation: dict[str, Any] = {}
        # Totals of this process, for rates: unlike counters they never jump at a restore.
        self._messages = self._frames = self._trained = self._updates = 0
        self._batches = self._requests = self._rows = self._padded_rows = 0
        self._environment_s = self._wait_s = self._latency_s = self._oldest_s = 0.0
        self._run_s = self._held_up_s = 0.0
        self._depths = self._fill = 0.0  # how often depths were set, and the queue's fill then
        self._wire_clock: int | None = None  # the event loop thread's CPU clock
        self._scalar_sums: dict[str, float] = {}
        self._scalar_updates = 0
        self._lock = threading.Lock()

    def on_step(self, frames: int, environment_seconds: float, wait_seconds: float) -> None:
        """One Step message: emulator frames, and the actor's seconds as the message says them."""
        self.counters.env_frames += frames
        self._frames += frames
        self._messages += 1
        self._environment_s += environment_seconds
        self._wait_s += wait_seconds
        if self._wire_clock is None:
            self._wire_clock = _thread_clock()

    def on_episodes(self, returns: NDArray[np.floating], lengths: NDArray[np.integer]) -> None:
        """Episodes that ended: raw undiscounted returns [n], lengths in steps [n]."""
        self.counters.episodes += len(returns)
        self.returns.observe_many(returns)
        self.lengths.observe_many(lengths)
        self.recent_returns.extend(returns)
        self.recent_lengths.extend(lengths)

    def on_held_up(self, seconds: float) -> None:
        """A session's block waited so long for room in the unroll queue. 0 need not be told."""
        with self._lock:
            self._held_up_s += seconds

    def on_abandoned(self, episodes: int) -> None:
        """Episodes that were cut by a disconnect or a restart."""
        with self._lock:
            self.counters.abandoned_episodes += episodes

    def on_discarded(self, frames: int, reason: str) -> None:
        """Frames that will never be trained on, and why, in a word or two."""
        if not frames:
            return
        with self._lock:
            self.counters.discarded_frames += frames
            self.discarded_by_reason[reason] += frames

    def on_inference(
        self,
        rows: int,
        padded_rows: int,
        requests: int,
        oldest_wait_s: float,
        latencies_s: Sequence[float] | NDArray[np.floating],
        run_s: float,
    ) -> None:
        """One inference batch.

        Args:
            rows: environments in it.
            padded_rows: its size with padding.
            requests: sessions in it.
            oldest_wait_s: how long its oldest request had waited when it started.
            latencies_s: of each request, from its arrival until its actions were ready.
            run_s: how long the computation took.
        """
        if len(latencies_s) <= _FEW:
            for latency in latencies_s:
                self.latency_s.observe(latency)
                self.recent_latency_s.append(latency)
        else:
            self.latency_s.observe_many(latencies_s)
            self.recent_latency_s.extend(latencies_s)
        self.batch_rows.observe(rows)
        with self._lock:
            self._batches += 1
            self._requests += requests
            self._rows += rows
            self._padded_rows += padded_rows
            self._latency_s += sum(latencies_s)
            self._oldest_s += oldest_wait_s
            self._run_s += run_s

    def on_update(
        self,
        scalars: Mapping[str, float],
        lag_updates: NDArray[np.floating],
        step_s: float,
        trained_frames: int,
    ) -> None:
        """One update of the parameters.

        Args:
            scalars: numbers of the training step, such as `loss`.
            lag_updates: [B] mean policy lag of each column, in parameter versions.
            step_s: seconds of the training step.
            trained_frames: emulator frames in its batch.
        """
        numbers = {name: float(value) for name, value in scalars.items()}
        self.lag.observe_many(lag_updates)
        self.recent_lag.extend(lag_updates)
        self.step_s.observe(step_s)
        self.recent_step_s.append(step_s)
        with self._lock:
            self.counters.updates += 1
            self.counters.trained_frames += trained_frames
            self._updates += 1
            self._trained += trained_frames
            self.scalars = numbers
            for name, value in numbers.items():
                self._scalar_sums[name] = self._scalar_sums.get(name, 0.0) + value
            self._scalar_updates += 1

    def on_stream_error(self, field: str) -> None:
        """A stream ended because of what it sent; `field` as in StreamError."""
        with self._lock:
            self.stream_errors[field] += 1

    def on_checkpoint(self, seconds: float, bytes: int, ok: bool) -> None:
        """A checkpoint was written in `seconds`, or could not be."""
        with self._lock:
            if not ok:
                self.checkpoint_failures += 1
                return
            self.checkpoints += 1
            self.checkpoint_s, self.checkpoint_bytes = seconds, bytes
            self.checkpoint_at = time.monotonic()

    def on_evaluation(self, result: Mapping[str, Any]) -> None:
        """An evaluation ended; its numbers are exported by their keys."""
        with self._lock:
            self.evaluations += 1
            self.evaluation = dict(result)

    def set_sessions(self, sessions: int, environments: int) -> None:
        """So many streams, with so many environments, are connected now."""
        self.sessions, self.environments = sessions, environments

    def set_depths(
        self, inference_requests: int, unroll_columns: int, unroll_capacity: int
    ) -> None:
        """What waits now: requests for inference, and columns of unrolls out of how many."""
        self.inference_requests = inference_requests
        self.unroll_columns, self.unroll_capacity = unroll_columns, unroll_capacity
        if unroll_capacity:
            with self._lock:
                self._depths += 1
                self._fill += unroll_columns / unroll_capacity

    def mean_return(self, episodes: int) -> float | None:
        """Mean return of the last `episodes` ended episodes; None until there are that many.

        It knows of max(100, stop.mean_return_episodes) episodes, also from before a restart.
        """
        if not 0 < episodes <= len(self.recent_returns):
            return None
        return self.recent_returns.mean(episodes)

    def take_mean_scalars(self) -> dict[str, float]:
        """Means of the training scalars since the last call; empty without an update."""
        with self._lock:
            sums, updates = self._scalar_sums, self._scalar_updates
            self._scalar_sums, self._scalar_updates = {}, 0
        return {name: total / updates for name, total in sums.items()}

    def totals(self) -> dict[str, float]:
        """Running totals of this process, for `History`."""
        with self._lock:
            totals: dict[str, float] = {
                "messages": self._messages,
                "env_frames": self._frames,
                "trained_frames": self._trained,
                "updates": self._updates,
                "batches": self._batches,
                "requests": self._requests,
                "rows": self._rows,
                "padded_rows": self._padded_rows,
                "environment_s": self._environment_s,
                "wait_s": self._wait_s,
                "latency_s": self._latency_s,
                "oldest_s": self._oldest_s,
                "run_s": self._run_s,
                "held_up_s": self._held_up_s,
                "depths": self._depths,
                "fill": self._fill,
            }
        for name, clock in self.busy.items():
            totals[f"busy_{name}"], totals[f"blocked_{name}"] = clock.totals()
        totals["learner_cpu_s"] = time.process_time()
        machine = machine_cpu_seconds()
        if machine is not None:
            totals["machine_cpu_s"] = machine
        wire = _read_clock(self._wire_clock)
        if wire is not None:
            totals["wire_cpu_s"] = wire
        return totals


def _thread_clock() -> int:
    """The CPU clock of this thread; -1 where the platform has none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return -1
    return time.pthread_getcpuclockid(threading.get_ident())


def _read_clock(clock: int | None) -> float | None:
    if clock is None or clock == -1:
        return None
    try:
        return time.clock_gettime(clock)
    except OSError:
        return None  # the thread has ended
