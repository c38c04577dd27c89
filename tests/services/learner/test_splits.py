"""One device acts and three train: the master invariant over the wire, and CartPole is learned.

`tools/splits.py` tries the other splits; docs/results keeps its table.
"""

from __future__ import annotations

from tools.splits import measure


def test_one_acts_and_three_train() -> None:
    found = measure("1+3")
    assert found.invariant
    assert found.passes, found
