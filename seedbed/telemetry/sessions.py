"""Counts of streams, steps and episodes."""

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.metrics import Histogram, Metric, counter, documented, gauge, histogram
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.windows import RecentValues

_POSITIVE_RETURNS = (
    *(1, 2, 5, 10, 15, 18, 20, 21, 30, 50, 100, 200, 300, 400, 500, 1_000, 2_000, 5_000),
    *(10_000, 20_000, 50_000, 100_000, 1_000_000),
)
RETURN_BOUNDS = (*(-bound for bound in reversed(_POSITIVE_RETURNS)), 0, *_POSITIVE_RETURNS)
LENGTH_BOUNDS = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 27_000, 50_000, 108_000)

STREAM_ERROR_FIELDS = (
    *("protocol_version", "environment", "environments", "observation", "actions"),
    *("action_repeat", "sequence", "reward", "flags", "slots", "idle"),
    *("unauthenticated", "permission_denied"),
)


class SessionStats:
    """Streams, steps, episodes, and the frames that are not trained on.

    `on_step` and `on_episodes` belong to the event loop's thread and take no lock that is held for
    long.

    Attributes:
        connected: Actor streams connected now.
        environments: Environments connected now.
        returns: Undiscounted, unclipped returns of the episodes that ended in this process.
        lengths: Lengths, in steps, of the episodes that ended in this process.
        exploration: Lowest and highest ε of the environments so far, over all restarts; None
            before the first, and without an ε-greedy agent.
        lowest_epsilon: Lowest exploration ε of the environments so far, over all restarts.
        highest_epsilon: Highest exploration ε of the environments so far, over all restarts.
        recent_mean_return: Mean return of the last episodes, up to 100. NaN before the first.
        discarded_by_reason: Frames discarded by this process, by reason; a reason appears with its
            first frame.
        stream_errors: Streams ended because of what the actor sent, by the field that did not fit,
            and calls refused for a credential, by the code of gRPC.
        recent_returns: Returns of the last max(100, stop.mean_return_episodes) episodes, also from
            before a restart.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_sessions", "connected"),
        gauge("seedbed_environments", "environments"),
        gauge("seedbed_exploration_epsilon_lowest", "lowest_epsilon", tag="charts"),
        gauge("seedbed_exploration_epsilon_highest", "highest_epsilon", tag="charts"),
        histogram("seedbed_episode_return", "returns", tag="charts/episodic_return"),
        histogram("seedbed_episode_length", "lengths", tag="charts/episodic_length"),
        gauge("seedbed_mean_return", "recent_mean_return", tag="charts"),
        counter(
            "seedbed_discarded_frames_by_reason_total", "discarded_by_reason", labels=("reason",)
        ),
        counter("seedbed_stream_errors_total", "stream_errors", ("field",), STREAM_ERROR_FIELDS),
    )

    def __init__(self, counters: Counters, mean_return_episodes: int) -> None:
        self._counters = counters
        self.connected = self.environments = 0
        self.exploration: tuple[float, float] | None = None
        self.messages = 0
        self.returns = Histogram(RETURN_BOUNDS)
        self.lengths = Histogram(LENGTH_BOUNDS)
        self.recent_returns = RecentValues(max(100, mean_return_episodes))
        self.recent_lengths = RecentValues(100)
        # Appending costs 50 ns, and a step comes thousands of times a second.
        self._recent_wait_s: deque[float] = deque(maxlen=4096)
        self.stream_errors: Counter[str] = Counter()
        self.discarded_by_reason: Counter[str] = Counter()
        self._frames = 0
        self._environment_s = self._wait_s = self._backpressure_s = 0.0
        # The CPU clock of the event loop's thread.
        self._grpc_clock: int | None = None
        self._lock = threading.Lock()

    def on_step(self, frames: int, environment_seconds: float, wait_seconds: float) -> None:
        """Count one Step message.

        Args:
            frames: Emulator frames of the step.
            environment_seconds: How long the environments stepped, as the actor measured.
            wait_seconds: How long the actor waited for its actions, as the actor measured: from
                before it sent the step before this one until it had read the actions for it. It
                holds both ways over the network, the batcher, inference, and the wait for room in
                the unroll queue. 0 in a stream's first step, before which there were no actions.
        """
        self._counters.env_frames += frames
        self._frames += frames
        self.messages += 1
        self._environment_s += environment_seconds
        self._wait_s += wait_seconds
        if wait_seconds:  # none before the first actions of a stream
            self._recent_wait_s.append(wait_seconds)
        if self._grpc_clock is None:
            self._grpc_clock = _thread_clock()

    def on_episodes(self, returns: NDArray[np.floating], lengths: NDArray[np.integer]) -> None:
        """Count episodes that ended: raw undiscounted returns [n], lengths in steps [n].

        Args:
            returns: [n] raw, undiscounted returns.
            lengths: [n] lengths in steps.
        """
        self._counters.episodes += len(returns)
        self.returns.observe_many(returns)
        self.lengths.observe_many(lengths)
        self.recent_returns.extend(returns)
        self.recent_lengths.extend(lengths)

    def on_abandoned(self, episodes: int) -> None:
        """Count episodes that were cut by a disconnect or a restart."""
        with self._lock:
            self._counters.abandoned_episodes += episodes

    def on_discarded(self, frames: int, reason: str) -> None:
        """Count frames that will never be trained on; `reason` is a word or two."""
        if not frames:
            return
        with self._lock:
            self._counters.discarded_frames += frames
            self.discarded_by_reason[reason] += frames

    def on_backpressure(self, seconds: float) -> None:
        """Count the seconds for which a session's unroll waited for room in the unroll queue."""
        with self._lock:
            self._backpressure_s += seconds

    def on_stream_error(self, field: str) -> None:
        """Count a stream that ended because of what the actor sent; `field` as in StreamError."""
        with self._lock:
            self.stream_errors[field] += 1

    def on_exploration(self, held: Sequence[float] | None) -> None:
        """Extend the range of exploration.

        Args:
            held: Lowest and highest ε of the environments connected now; None if there are none,
                or if the agent is not ε-greedy.
        """
        if held:
            lowest, highest = self.exploration or held
            self.exploration = min(lowest, held[0]), max(highest, held[1])

    @property
    def lowest_epsilon(self) -> float | None:
        """Lowest exploration ε of the environments so far, over all restarts."""
        return self.exploration and self.exploration[0]

    @property
    def highest_epsilon(self) -> float | None:
        """Highest exploration ε of the environments so far, over all restarts."""
        return self.exploration and self.exploration[1]

    @property
    def recent_mean_return(self) -> float | None:
        """Mean return of the last episodes, up to 100; None before the first."""
        return self.recent_returns.mean(100)

    def mean_return(self, episodes: int) -> float | None:
        """Return the mean return of the last `episodes`; None until so many have ended.

        Args:
            episodes: Number of episodes; 0 has no mean.
        """
        if not 0 < episodes <= len(self.recent_returns):
            return None
        return self.recent_returns.mean(episodes)

    def round_trip_s(self, percent: float) -> float | None:
        """Return a percentile of recent round trips in seconds; None before the first.

        A round trip is the time from sending a step to its actions, as the actor measured it: the
        end-to-end latency of inference (SEED, Table 13).

        Args:
            percent: From 0 to 100.
        """
        waits = list(self._recent_wait_s)
        return float(np.percentile(waits, percent)) if waits else None

    def totals(self) -> dict[str, float]:
        """Return running totals of this process."""
        totals: dict[str, float] = {
            "messages": self.messages,
            "env_frames": self._frames,
            "environment_s": self._environment_s,
            "wait_s": self._wait_s,
            "backpressure_s": self._backpressure_s,
        }
        if self._grpc_clock is not None:
            # An error: the thread has ended, or the platform has no such clock.
            with suppress(OSError):
                totals["grpc_cpu_s"] = time.clock_gettime(self._grpc_clock)
        return totals


def _thread_clock() -> int:
    """Return the CPU clock of this thread; -1 where the platform has none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return -1
    return time.pthread_getcpuclockid(threading.get_ident())
