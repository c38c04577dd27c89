"""Parts of the slow tests, of which each commit's CI runs one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

PARTS = 5
T = TypeVar("T")


def left_out(slow: Sequence[T], part: str) -> list[T]:
    """Return the tests of the other parts; none for `all`."""
    if part == "all":
        return []
    if part not in map(str, range(PARTS)):
        raise pytest.UsageError(f"SEEDBED_TEST_PART={part!r} is no part: 0 to {PARTS - 1}, or all")
    return [test for i, test in enumerate(slow) if i % PARTS != int(part)]
