"""Windows, clocks and histograms against slow references."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from seedbed.runtime.metrics import Histogram
from seedbed.telemetry import BusyClock
from seedbed.telemetry.windows import History, RecentValues


@pytest.mark.parametrize("sizes", [[3], [5, 5, 5], [1, 0, 7, 2], [8], [20], [3, 20, 1]])
def test_recent_values_are_the_last_ones(sizes: list[int]) -> None:
    recent, everything = RecentValues(8), []
    random = np.random.default_rng(0)
    for size in sizes:
        values = random.normal(size=size)
        if size == 1:
            recent.append(float(values[0]))
        else:
            recent.extend(values)
        everything += values.tolist()
        kept = everything[-8:]
        assert recent.values().tolist() == kept
        assert recent.values(3).tolist() == kept[-3:]
        if kept:
            assert recent.mean() == pytest.approx(sum(kept) / len(kept))
            assert recent.percentile(50) == pytest.approx(float(np.median(kept)))


def test_nothing_recent_is_none_not_zero() -> None:
    recent = RecentValues(4)
    assert recent.mean() is None
    assert recent.percentile(99) is None


def test_rates_of_each_window() -> None:
    """100 a second for 300 s, then 10 a second for 30 s, looked at every 5 s."""
    history, total = History(), 0.0
    for second in range(0, 335, 5):
        history.add(1000.0 + second, {"frames": total})
        total += 5 * (100 if second < 300 else 10)
    assert history.rate("frames", 10) == pytest.approx(10)
    assert history.rate("frames", 60) == pytest.approx((30 * 100 + 30 * 10) / 60)
    assert history.rate("frames", 300) == pytest.approx((270 * 100 + 30 * 10) / 300)


def test_a_young_run_has_the_rate_of_its_life() -> None:
    history = History()
    history.add(0.0, {"frames": 0})
    assert history.rate("frames", 60) is None
    history.add(5.0, {"frames": 50, "late": 3})
    assert history.rate("frames", 60) == 10
    assert history.rate("late", 60) is None
    history.add(7.0, {"frames": 50, "late": 3})
    assert history.rate("frames", 60) == pytest.approx(50 / 7)
    assert history.ratio("frames", "late", 60) is None  # nothing to divide by


def test_history_is_bounded() -> None:
    history = History(longest_s=300)
    for second in range(5000):
        history.add(float(second), {"frames": second * 7})
    assert len(history._snapshots) <= 302
    assert history.rate("frames", 300) == pytest.approx(7)


def test_clock_splits_time() -> None:
    now = 0.0
    clock = BusyClock(lambda: now)
    now = 1.0  # idle
    with clock:
        now = 3.0  # busy 2
        with clock.blocked("the queue is full"):
            assert clock.waiting_for == "the queue is full"
            now = 8.0  # blocked 5
            assert clock.state == ("blocked", 5.0)
            assert clock.totals() == (2.0, 5.0)
        assert clock.waiting_for == ""
        now = 9.0  # busy 1
        assert clock.totals() == (3.0, 5.0)  # the present stretch counts
    now = 20.0
    with clock.blocked("x"):
        now = 21.0
    now = 30.0
    assert clock.totals() == (3.0, 6.0)
    assert clock.state == ("idle", 9.0)
    clock.waiting_for = "unrolls"
    assert clock.waiting_for == "unrolls"


def test_clock_goes_on_after_an_error() -> None:
    clock = BusyClock()
    with pytest.raises(KeyError), clock, clock.blocked("x"):
        raise KeyError
    assert clock.state[0] == "idle"
    assert clock.waiting_for == ""


def test_histogram_counts_like_its_definition() -> None:
    bounds = (-2.0, 0.0, 0.5, 3.0)
    values = [-5.0, -2.0, -1.9, 0.0, 0.2, 0.5, 3.0, 3.1, 100.0]
    many, one = Histogram(bounds), Histogram(bounds)
    many.observe_many(values)
    for value in values:
        one.observe(value)
    cumulative = [sum(value <= bound for value in values) for bound in bounds] + [len(values)]
    for histogram in (many, one):
        counts, total = histogram.read()
        assert np.cumsum(counts).tolist() == cumulative
        assert total == pytest.approx(sum(values))


def test_histogram_of_many_threads_loses_nothing() -> None:
    histogram = Histogram((1.0,))

    def work() -> None:
        for _ in range(2000):
            histogram.observe(0.5)
            histogram.observe_many([2.0, 0.1])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert histogram.read() == ([16000, 8000], pytest.approx(4 * 2000 * 2.6))
