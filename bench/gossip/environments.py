"""Environment of the benchmark: one that can be slow."""

import time
from typing import Any

import gymnasium


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sleeps at every step of an environment of Gymnasium, as a simulator that computes elsewhere.

    Args:
        id: Of the environment.
        sleep_s: Time that a step takes longer, in seconds.
    """

    def __init__(self, id: str, sleep_s: float) -> None:
        super().__init__(gymnasium.make(id))
        self._sleep_s = sleep_s

    def step(self, action: Any) -> Any:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        return super().step(action)
