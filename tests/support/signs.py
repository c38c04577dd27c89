"""A task of several observations and masked actions, learned in seconds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

LENGTH = 10
DECLINE = 4  # the right action where the sign's own is not valid


class Signs(gymnasium.Env[Any, Any]):
    """Ten signs an episode, each of which names an action; some are masked, and raise if taken.

    The bright half of the picture says whether the sign counts from the front or from the back.
    """

    observation_space = Dict(
        {
            "sign": Discrete(4, start=1),
            "picture": Box(0, 255, (24, 24), np.uint8),
            "noise": Box(-1, 1, (3,), np.float64),
        }
    )
    action_space = Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._see()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.mask[action], f"action {action} is not valid: {self.mask}"
        reward = float(action == self.right)
        self.t += 1
        observation, info = self._see()
        return observation, reward, self.t == LENGTH, False, info

    def _see(self) -> tuple[Any, dict[str, Any]]:
        sign, back = int(self.np_random.integers(4)), bool(self.np_random.integers(2))
        self.mask = np.ones(5, np.int8)
        self.mask[self.np_random.integers(4)] = 0
        right = 3 - sign if back else sign
        self.right = right if self.mask[right] else DECLINE
        picture = self.np_random.integers(0, 100, (24, 24), np.uint8)
        picture[12 * back : 12 + 12 * back] += np.uint8(150)
        observation = {
            "sign": sign + 1,
            "picture": picture,
            "noise": self.np_random.uniform(-1, 1, 3),
        }
        return observation, {"action_mask": self.mask.copy()}
