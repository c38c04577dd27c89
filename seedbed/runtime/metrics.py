"""Prometheus metrics that cost next to nothing to write: plain numbers, read at scrape.

A service says what it exports in a table of `Metric`. Its values live in plain attributes, each
written by one thread; a `TableCollector` turns them into samples when somebody scrapes. The same
table makes `docs/metrics.md`.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

LATENCY_BOUNDS_S = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)


@dataclass(frozen=True)
class Metric:
    """One row of a service's table of metrics.

    Attributes:
        name: in full, with unit and, for counters, `_total`.
        label: name of its label, names of several, or "" without one.
        help: one sentence; for gauges, what "no value yet" (NaN) means, where it can be so.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    label: str | tuple[str, ...] = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels."""
        return tuple(filter(None, [self.label])) if isinstance(self.label, str) else self.label


class Histogram:
    """Counts of values in buckets. Thread-safe; a batch costs one call of `observe_many`."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are the buckets' upper ends (inclusive), increasing; +Inf is implied."""
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds {list(bounds)} do not increase")
        self.bounds = tuple(float(bound) for bound in bounds)
        self._edges = np.asarray(self.bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count one value."""
        with self._lock:
            self._counts[bisect.bisect_left(self.bounds, value)] += 1
            self._sum += value

    def observe_many(self, values: ArrayLike) -> None:
        """Count every element of an array."""
        array = np.asarray(values, np.float64).ravel()
        if not array.size:
            return
        places = np.searchsorted(self._edges, array, side="left")
        added = np.bincount(places, minlength=len(self._counts)).tolist()
        with self._lock:
            self._counts = [old + new for old, new in zip(self._counts, added, strict=True)]
            self._sum += float(array.sum())

    def read(self) -> tuple[list[int], float]:
        """Counts of the buckets, the last one above all bounds (not cumulative), and the sum."""
        with self._lock:
            return list(self._counts), self._sum


# A mapping is from the label's values; from tuples of them where there are several.
Value = float | Mapping[Any, float] | Histogram


class TableCollector:
    """Exports a table of metrics. Every row must have a value at every scrape, from the start."""

    def __init__(self, table: Sequence[Metric], read: Callable[[], Mapping[str, Value]]) -> None:
        """`read` gives the value of each row by its name; it runs in the scraping thread."""
        self._table = tuple(table)
        self._read = read

    def collect(self) -> Iterator[Family]:
        """What prometheus_client asks for."""
        values = self._read()
        for metric in self._table:
            yield _family(metric, values[metric.name])

    def describe(self) -> Iterable[Family]:
        """Nothing, so that registering does not read."""
        return ()


def registry_of(collector: TableCollector) -> CollectorRegistry:
    """A registry that holds this collector only."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _family(metric: Metric, value: Value) -> Family:
    if isinstance(value, Histogram):
        counts, total = value.read()
        cumulative = np.cumsum(counts).tolist()
        names = [*(repr(bound) for bound in value.bounds), "+Inf"]
        histogram = HistogramMetricFamily(metric.name, metric.help)
        for bound, count in zip(names, cumulative, strict=True):
            histogram.add_sample(f"{metric.name}_bucket", {"le": bound}, count)
        # By hand, because the client leaves these two out where buckets are negative (returns).
        histogram.add_sample(f"{metric.name}_count", {}, cumulative[-1])
        histogram.add_sample(f"{metric.name}_sum", {}, total)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return make(metric.name, metric.help, value=float(value))
    family = make(metric.name, metric.help, labels=metric.labels)
    for label, number in value.items():
        family.add_metric([label] if isinstance(label, str) else label, float(number))
    return family
