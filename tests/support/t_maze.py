"""A T-maze (Bakker 2001): a sign at the start says where to turn at the end of a corridor."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class TMaze(gymnasium.Env[Any, Any]):
    """Observation: [4] float32, the sign (-1 or 1 on the first row, then 0), corridor, junction and
    a constant. Actions: up, down; either one walks on in the corridor. Reward: 1 or -1 at the end.
    """

    def __init__(self, length: int = 6) -> None:
        self.length = length
        self.observation_space = Box(-1, 1, (4,), np.float32)
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        self.sign = int(self.np_random.integers(2))
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        over = self.at == self.length
        reward = (1.0 if int(action) == self.sign else -1.0) if over else 0.0
        self.at += 1
        return self._see(), reward, over, False, {}

    def _see(self) -> Any:
        sign = 2 * self.sign - 1 if self.at == 0 else 0
        return np.array([sign, self.at < self.length, self.at == self.length, 1], np.float32)
