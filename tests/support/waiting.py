"""Waiting for what a process does: on its effect, never on a clock alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = 60.0  # what hangs is found, what is only slow on a busy machine passes
_T = TypeVar("_T")


def wait_for(
    condition: Callable[[], _T | None],
    what: str,
    deadline_s: float = DEADLINE_S,
    every_s: float = 0.01,
) -> _T:
    """Wait until `condition` gives something true, and return that. It is looked at often."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"after {deadline_s:g} s still not: {what}"
        time.sleep(every_s)
