"""Environments that are refused before a backend is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from tests.support.toy_environments import Counter


class Raises(Counter):
    def step(self, action: int) -> Any:
        raise RuntimeError("boom")


class Unbounded(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.action_space: Any = Box(-np.inf, np.inf, (2,))
