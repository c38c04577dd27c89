"""A short part of the storm: one run that learns, all three services, every kind of hit."""

from __future__ import annotations

import pytest

from tests.storm.part import run_part, table
from tests.storm.runs import VtraceRun

MOST_GROWTH_MB = 100


@pytest.mark.slow
def test_a_slice_of_the_storm() -> None:
    part = run_part(seed=7, minutes=0.25, runs=(VtraceRun,))
    print(table(part))
    assert part["problems"] == []
    assert part["examples"] == []
    assert part["unanswered"] == 0
    assert part["frames_lost"] == {"vtrace": 0}
    assert max(part["growth_mb"].values()) < MOST_GROWTH_MB
    assert sum(part["messages"].values()) > 1000
    assert sum(part["events"]["vtrace"].values()) > 0
