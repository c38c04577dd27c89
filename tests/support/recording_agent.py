"""R2D2 that remembers what acting computed, so that a test can compare it with training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.protocol import Body, SequenceWindow
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.agents.r2d2.options import R2d2Options


class RecordingR2d2(R2d2Agent):
    """`acted` has, by `name_of` a sequence, the action values [R] chosen and best of acting."""

    def __init__(self, options: R2d2Options, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        kernel = self.model.dueling.advantage.kernel
        kernel.assign(10.0 * kernel)  # or untrained values would hardly differ
        self.acted: dict[bytes, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def initial_priority(self, window: SequenceWindow) -> NDArray[np.float32]:
        """As it is, and remembered."""
        chosen, best = window.behaviour["chosen"], window.behaviour["best"]
        for e in range(window.reward.shape[1]):
            name = name_of(window.reward[:, e], window.action[:-1, e])
            assert name not in self.acted, "two sequences that look the same"
            self.acted[name] = chosen[:, e].copy(), best[:, e].copy()
        return super().initial_priority(window)


def name_of(reward: NDArray[np.float32], action: NDArray[np.int32]) -> bytes:
    """What tells a sequence's rewards [R] and actions [R-1] from all others."""
    return reward.tobytes() + action.tobytes()
