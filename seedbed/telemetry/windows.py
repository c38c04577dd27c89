"""Statistics of the recent past: the last N values, and rates over the last seconds."""

import threading
from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

FPS_WINDOWS_S = (10, 60, 300)
# Long enough for a slow training step, short enough to react.
LOAD_WINDOW_S = 30.0


class RecentValues:
    """The last `capacity` values, for exact means and percentiles of them. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._ring = np.zeros(capacity, np.float64)
        # Values so far; the next one goes to this index modulo capacity.
        self._written = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    def extend(self, values: ArrayLike) -> None:
        """Append every element of an array, in order.

        Args:
            values: Numbers, oldest first; the shape does not matter.
        """
        array = np.asarray(values, np.float64).ravel()[-self.capacity :]
        with self._lock:
            start = self._written % self.capacity
            head = min(array.size, self.capacity - start)
            self._ring[start : start + head] = array[:head]
            self._ring[: array.size - head] = array[head:]
            self._written += array.size

    def append(self, value: float) -> None:
        """Append one value."""
        with self._lock:
            self._ring[self._written % self.capacity] = value
            self._written += 1

    def values(self, last: int | None = None) -> NDArray[np.float64]:
        """Return the last `last` values (all that are stored, if None), oldest first.

        Args:
            last: Number of values; None is all that are stored.
        """
        with self._lock:
            size = len(self)
            count = size if last is None else min(last, size)
            places = np.arange(self._written - count, self._written) % self.capacity
            return self._ring[places]

    def mean(self, last: int | None = None) -> float | None:
        """Return the mean of the last values; None without any.

        Args:
            last: Number of values; None is all that are stored.
        """
        values = self.values(last)
        return float(values.mean()) if values.size else None

    def percentile(self, percent: float) -> float | None:
        """Return an interpolated percentile of the stored values; None without any.

        Args:
            percent: 0 is the smallest value, 100 the largest.
        """
        values = self.values()
        return float(np.percentile(values, percent)) if values.size else None


class History:
    """Snapshots of running totals, for rates over the last seconds.

    Thread-safe.
    """

    def __init__(self, longest_s: float = 300.0) -> None:
        self._longest_s = longest_s
        self._snapshots: deque[tuple[float, Mapping[str, float]]] = deque()
        self._lock = threading.Lock()

    def add(self, now: float, totals: Mapping[str, float]) -> None:
        """Store the totals of `now` (monotonic seconds).

        Args:
            now: Monotonic seconds.
            totals: Running totals by name; they never fall.
        """
        with self._lock:
            self._snapshots.append((now, totals))
            # One snapshot at least as old as the longest window stays, as the window's start.
            while len(self._snapshots) > 2 and self._snapshots[1][0] <= now - self._longest_s:
                self._snapshots.popleft()

    def growth(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Return how much a total grew, and in how many seconds, up to the newest snapshot.

        The window is shorter while the run is younger. None before two snapshots have the total.
        """
        with self._lock:
            snapshots = [(at, totals[name]) for at, totals in self._snapshots if name in totals]
        if len(snapshots) < 2:
            return None
        end, newest = snapshots[-1]
        # Snapshots come a little early or late: take the one nearest to the window's start.
        start, oldest = min(snapshots[:-1], key=lambda snapshot: abs(end - window_s - snapshot[0]))
        return (newest - oldest, end - start) if end > start else None

    def rate(self, name: str, window_s: float = LOAD_WINDOW_S) -> float | None:
        """Return the growth a second; see `growth`."""
        grown = self.growth(name, window_s)
        return None if grown is None else grown[0] / grown[1]

    def ratio(self, name: str, other: str, window_s: float = LOAD_WINDOW_S) -> float | None:
        """Return the growth of one total by that of another; None while the other did not grow."""
        grown, base = self.growth(name, window_s), self.growth(other, window_s)
        return None if grown is None or base is None or base[0] <= 0 else grown[0] / base[0]
