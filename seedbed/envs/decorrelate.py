"""Decorrelation: environments that start together get out of step.

Without it the environments stay in step for long. Until the policy touches the ball, every game of
Pong loses its points at the same steps, so that a batch holds the same moment many times.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.spec import TimeStep, VectorEnv


class DecorrelatedVectorEnv(VectorEnv):
    """Vector environment that cuts the first episode of each environment once.

    Each environment has a step of its own for the cut, drawn uniformly from 1 .. `steps`. If the
    environment starts an episode at that step, the cut follows at the next step.

    Args:
        env: the vector environment to step.
        steps: latest step of a cut.
        seeds: seeds of the environments, from which the steps are drawn.
    """

    def __init__(self, env: VectorEnv, steps: int, seeds: Sequence[int]) -> None:
        self._env = env
        self._steps = steps
        self._seeds = list(seeds)
        self.spec, self.num_envs = env.spec, env.num_envs
        # Step of the cut of each environment, [E]; 0 after the cut.
        self._due: NDArray[np.int64] = np.zeros(self.num_envs, np.int64)
        self._uncut = 0  # environments that have no cut yet
        self._step = 0

    @override
    def reset(self) -> TimeStep:
        self._draw()
        return self._env.reset()

    @override
    def reset_again(self) -> TimeStep:
        self._draw()
        return self._env.reset_again()

    def _draw(self) -> None:
        """Draw the step of each cut."""
        self._step = 0
        random = np.random.default_rng([*self._seeds, self.incarnation])
        self._due = random.integers(1, self._steps + 1, self.num_envs)
        self._uncut = self.num_envs
        self._env.incarnation = self.incarnation

    @override
    def step(self, action: NDArray[np.int32]) -> TimeStep:
        time_step = self._env.step(action)
        self.failures = self._env.failures
        if not self._uncut:
            return time_step
        self._step += 1
        due = (self._due > 0) & (self._due <= self._step)
        # An environment whose step is finished or first starts an episode anyway: cut it later.
        due &= ~(time_step.terminated | time_step.truncated | time_step.first)
        if due.any():
            self._due[due] = 0
            self._uncut = int(np.count_nonzero(self._due))
            self._env.restart(time_step, due)
        return time_step

    @override
    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        self._env.restart(time_step, chosen)

    @override
    def close(self) -> None:
        self._env.close()
