"""Episodes that do not run in step.

Environments that all begin together stay together for long: until the policy touches the ball,
every game of Pong loses its points at the same steps. A batch of such rows is one moment many
times over, and what looks like its mean is the moment's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import TimeStep, VectorEnv


class DecorrelatedVectorEnv:
    """A group that cuts the first episode of each environment once. See `VectorEnv`.

    The cut comes at a step of the environment's own, drawn uniformly from 1 .. `steps`. An episode
    that has ended by itself until then is not cut: the next one is.
    """

    def __init__(self, group: VectorEnv, steps: int, seeds: Sequence[int]) -> None:
        self._group = group
        self._steps = steps
        self._random = np.random.default_rng(list(seeds))
        self.spec, self.num_envs = group.spec, group.num_envs
        self._due: NDArray[np.int64] = np.zeros(self.num_envs, np.int64)  # 0: was cut
        self._step = 0

    def reset(self) -> TimeStep:
        """Start every environment's first episode; each will be cut once."""
        self._step = 0
        self._due = self._random.integers(1, self._steps + 1, self.num_envs)
        return self._group.reset()

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        """Step every environment, and begin anew where it is due."""
        time_step = self._group.step(action)
        self._step += 1
        due = (self._due > 0) & (self._due <= self._step)
        # A row that is finished or first begins an episode by itself, at a step of its own or
        # not: cut it at the next step that does neither.
        due &= ~(time_step.terminated | time_step.truncated | time_step.first)
        if due.any():
            self._due[due] = 0
            self._group.restart(time_step, due)
        return time_step

    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        """See `VectorEnv`."""
        self._group.restart(time_step, chosen)

    def close(self) -> None:
        """Close the group."""
        self._group.close()
