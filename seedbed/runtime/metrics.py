"""Prometheus metrics that are declared once, beside the object that counts them.

A stats object counts in plain attributes and lists in `METRICS` what it exports: name, and the
attribute that has the value. What the class's docstring says of the attribute is the metric's help.
A `StatsRegistry` reads the values at each scrape. The same declarations make `docs/metrics.md`.

The counts are no `prometheus_client` objects because their writes are on the path of every step:
`Counter.inc` takes 14 times as long as `+=`, and `Histogram.observe` twice as long as the one here,
which also counts a whole array in one call.
"""

import bisect
import inspect
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from typing_extensions import override

LATENCY_BOUNDS_S = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
# Groups in TensorBoard and W&B: of what names no other one, of updates, and of evaluations.
SYSTEM, LOSSES, EVAL = "system", "losses", "eval"
# An entry of a section `Attributes:`, with the lines that continue it.
_ATTRIBUTE = re.compile(r"^ {4}([\w.]+): (.+(?:\n {8}.+)*)", re.MULTILINE)


class Histogram:
    """Counts of values in buckets. Thread-safe; a batch costs one call of `observe_many`."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Make empty buckets.

        Args:
            bounds: The buckets' inclusive upper ends, increasing; +Inf is implied.
        """
        self.bounds = tuple(float(bound) for bound in bounds)
        self._edges = np.asarray(self.bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count one value.

        Args:
            value: A number in the unit of the bounds.
        """
        with self._lock:
            self._counts[bisect.bisect_left(self.bounds, value)] += 1
            self._sum += value

    def observe_many(self, values: ArrayLike) -> None:
        """Count every element of an array.

        Args:
            values: Numbers in the unit of the bounds; the shape does not matter.
        """
        array = np.asarray(values, np.float64).ravel()
        if not array.size:
            return
        places = np.searchsorted(self._edges, array, side="left")
        added = np.bincount(places, minlength=len(self._counts)).tolist()
        with self._lock:
            self._counts = [old + new for old, new in zip(self._counts, added, strict=True)]
            self._sum += float(array.sum())

    def read(self) -> tuple[list[int], float]:
        """Return the counts (not cumulative, the last one above all bounds) and the sum."""
        with self._lock:
            return list(self._counts), self._sum

    def total(self) -> tuple[int, float]:
        """Return how many values were counted, and their sum."""
        counts, total = self.read()
        return sum(counts), total


# A mapping is by the label's value, or by a tuple of values where a metric has several labels.
Value = float | Mapping[Any, float] | Histogram


@dataclass(frozen=True)
class Metric:
    """One exported metric.

    Attributes:
        name: Full name, with its unit and, for counters, `_total`.
        read: The attribute of the stats object that has the value, such as "buffer.size" or, of a
            dict, "scalars.loss".
        labels: Names of the labels.
        known: Label values that are exported from the start, with 0.
        nothing: Value that is exported where there is none.
        help: A sentence that stands alone; for gauges also what NaN means, where it can occur.
        tag: Group in TensorBoard and W&B, to which the names of the numbers are added; the whole
            tag where it has a slash. None: the metric is in Prometheus alone.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    read: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    nothing: float = math.nan
    help: str = ""
    tag: str | None = SYSTEM

    @property
    def is_column(self) -> bool:
        """Whether progress.csv has the metric: a curve without a label, and not of an update."""
        return self.tag not in (None, LOSSES) and not self.labels

    def numbers(self, value: Value) -> dict[str, float]:
        """Return the numbers of a value by name; none of a histogram.

        A name is the metric's without `seedbed_` and `_total`, and the values of its labels. A
        label `name` is the whole name.
        """
        if isinstance(value, Histogram):
            return {}
        stem = self.name.removeprefix("seedbed_").removesuffix("_total")
        if not isinstance(value, Mapping):
            return {stem: +value}  # a flag becomes a number
        prefix = "" if self.labels == ("name",) else f"{stem}_"
        return {f"{prefix}{_word(label)}": number for label, number in value.items()}

    def curves(self, value: Value) -> dict[str, float]:
        """Return the numbers of a value by their tags in TensorBoard and W&B."""
        if self.tag is None:
            return {}
        whole = "/" in self.tag
        return {
            self.tag if whole else f"{self.tag}/{name}": float(number)
            for name, number in self.numbers(value).items()
        }

    def value(self, stats: object) -> Value:
        """Read the present value from a stats object."""
        value: Any = stats
        for attribute in self.read.split("."):
            if isinstance(value, Mapping):
                value = value.get(attribute)
            elif value is not None:
                value = getattr(value, attribute)
        if isinstance(value, Mapping):
            # A copy, because the owner goes on counting.
            return {**dict.fromkeys(self.known, 0.0), **value}
        read: Value = self.nothing if value is None else value
        return read


counter = partial(Metric, "counter", nothing=0.0)
gauge = partial(Metric, "gauge")
histogram = partial(Metric, "histogram")


def _word(label: object) -> str:
    """Return the values of a metric's labels as one word."""
    parts = label if isinstance(label, tuple) else (label,)
    return "_".join(str(part).replace(" ", "_") for part in parts)


def documented(docstring: str | None, *metrics: Metric) -> tuple[Metric, ...]:
    """Return metrics with their help: what a docstring says of the attributes that they read.

    Args:
        docstring: Docstring with a section `Attributes:`, as a rule `__doc__` of the class.
        *metrics: Metrics without help.
    """
    _, _, section = inspect.cleandoc(docstring or "").partition("Attributes:\n")
    texts = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(section)}
    return tuple(replace(metric, help=texts.get(metric.read, "")) for metric in metrics)


class Stats(Protocol):
    """An object that declares what it exports."""

    METRICS: ClassVar[tuple[Metric, ...]]


class StatsRegistry(CollectorRegistry):
    """The Prometheus registry of stats objects.

    Attributes:
        metrics: Every metric, with the object that it reads.
    """

    def __init__(self, *stats: Stats) -> None:
        super().__init__()
        self.metrics = [(metric, item) for item in stats for metric in item.METRICS]

    def add(self, stats: Stats) -> None:
        """Export another object too."""
        self.metrics += [(metric, stats) for metric in stats.METRICS]

    def values(self) -> dict[str, Value]:
        """Return the present value of every metric, by name."""
        return {metric.name: metric.value(stats) for metric, stats in self.metrics}

    @override
    def collect(self) -> Iterator[Family]:
        for metric, stats in self.metrics:
            yield _family(metric, metric.value(stats))


def _family(metric: Metric, value: Value) -> Family:
    if isinstance(value, Histogram):
        counts, total = value.read()
        cumulative = np.cumsum(counts).tolist()
        names = [*(repr(bound) for bound in value.bounds), "+Inf"]
        buckets = HistogramMetricFamily(metric.name, metric.help)
        for bound, count in zip(names, cumulative, strict=True):
            buckets.add_sample(f"{metric.name}_bucket", {"le": bound}, count)
        # The client omits count and sum where buckets are negative, as those of returns are.
        buckets.add_sample(f"{metric.name}_count", {}, cumulative[-1])
        buckets.add_sample(f"{metric.name}_sum", {}, total)
        return buckets
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return make(metric.name, metric.help, value=float(value))
    family = make(metric.name, metric.help, labels=metric.labels)
    for label, number in value.items():
        family.add_metric(label if isinstance(label, tuple) else (str(label),), float(number))
    return family
