"""Parts add up, and every kind of stream of the judges is both served and refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.storm import targets
from tests.storm.fuzz import Method
from tests.storm.part import add_up, table
from tests.storm.streams import OK

PART: dict[str, Any] = {
    "parts": 1,
    "seeds": [1],
    "minutes": 10.0,
    "seconds": 600,
    "commit": "a",
    "machine": "2 cores",
    "messages": {"Act": 7},
    "streams": 3,
    "refused": 1,
    "cut": 1,
    "unanswered": 0,
    "mismatches": {"Act": 0},
    "examples": [],
    "events": {"vtrace": {"kill actor": 2}},
    "stall_s": {"vtrace": 5.0},
    "term_s": {"vtrace": 1.0},
    "frames_lost": {"vtrace": 0},
    "runs": {
        "vtrace": {
            "frames": 9,
            "updates": 3,
            "first_return": 20.0,
            "best_return": 120.0,
            "last_return": 110.0,
            "learned": True,
            "memory_mb": {"vtrace": 700},
        }
    },
    "growth_mb": {"shard": 3},
    "problems": [],
}


def test_parts_add_up() -> None:
    other = {
        **PART,
        "seeds": [2],
        "commit": "b",
        "messages": {"Act": 1, "Push": 5},
        "mismatches": {"Act": 0, "Push": 2},
        "events": {"vtrace": {"kill actor": 1, "stop actor": 1}},
        "stall_s": {"vtrace": 3.0},
        "problems": ["vtrace: odd"],
    }
    total = add_up([PART, other])
    assert total["messages"] == {"Act": 8, "Push": 5}
    assert total["mismatches"] == {"Act": 0, "Push": 2}
    assert total["frames_lost"] == {"vtrace": 0}
    assert total["events"] == {"vtrace": {"kill actor": 3, "stop actor": 1}}
    assert total["stall_s"] == {"vtrace": 5.0}
    assert total["runs"]["vtrace"]["frames"] == 18
    assert (total["parts"], total["seeds"], total["commit"]) == (2, [1, 2], "a b")
    shown = table(total)
    assert "| kill actor | 3 | 3 |" in shown
    assert "13 in 6 streams" in shown
    assert "Problems: 1." in shown
    assert PART["parts"] == 1, "parts are not changed"


@pytest.mark.parametrize(
    "method", [targets.ACT, *targets.REPLAY, *targets.GOSSIP], ids=lambda one: one.path
)
def test_streams_are_of_both_kinds(method: Method) -> None:
    """A judge that lets everything pass, or nothing, would prove nothing."""
    verdicts = [method.judge(method.make(random.Random(f"1/{i}"))) for i in range(300)]
    served = sum(OK in one.codes for one in verdicts)
    assert 30 < served < 270
    if method.is_answer is not targets.never:
        assert sum(one.answers for one in verdicts) > 100
