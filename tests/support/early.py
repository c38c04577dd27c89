"""An environment whose first step raises."""

from __future__ import annotations

from typing import Any

from tests.support.toy_environments import Counter


class Raises(Counter):
    def step(self, action: int) -> Any:
        raise RuntimeError("boom")
