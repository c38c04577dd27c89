"""Base of the vector environments that step one environment after the other."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.envs.actions import check_actions
from seedbed.envs.seeds import moved_seed
from seedbed.envs.watchdog import Watchdog
from seedbed.runtime.text import counted
from seedbed.spec import TimeStep, VectorEnv


class SequentialVectorEnv(VectorEnv):
    """E environments in lock step, stepped in the caller's thread. Each `TimeStep` has new arrays.

    Subclasses set `spec`, and add `_begin` and `_advance`.

    Args:
        name: the `environment.id`.
        seeds: [E], one for each environment.
        deadline_s: longest time of a call before the process ends; infinite for no end.

    Attributes:
        current: [1] int32, the environment whose call has not come back; -1 between calls.
        failures: as of `VectorEnv`; the same object throughout.
        last_failure: the newest failure of an environment, in words.
    """

    last_failure = ""

    def __init__(self, name: str, seeds: Sequence[int], deadline_s: float) -> None:
        self.num_envs = len(seeds)
        self._seeds = seeds
        self._done = np.zeros(self.num_envs, np.bool_)
        self.failures: Counter[str] = Counter()
        self.current = np.full(1, -1, np.int32)
        self._watchdog = Watchdog(
            f"{name} with {counted(self.num_envs, 'environment')}", deadline_s
        )

    @override
    def reset(self) -> TimeStep:
        return self._begin_all([moved_seed(seed, self.incarnation) for seed in self._seeds])

    @override
    def reset_again(self) -> TimeStep:
        return self._begin_all([None] * self.num_envs)

    def _begin_all(self, seeds: Sequence[int | None]) -> TimeStep:
        time_step = TimeStep.zeros(self.spec, self.num_envs)
        with self._watchdog:
            for i, seed in enumerate(seeds):
                self.current[0] = i
                self._begin(time_step, i, seed)
        self.current[0] = -1
        self._done = np.zeros(self.num_envs, np.bool_)
        return time_step

    @override
    def step(self, action: NDArray[Any]) -> TimeStep:
        check_actions(action, self.num_envs, self.spec.action)
        time_step = TimeStep.zeros(self.spec, self.num_envs)
        with self._watchdog:
            for i, chosen in enumerate(action.tolist()):
                self.current[0] = i
                if self._done[i]:
                    self._begin(time_step, i, None)
                else:
                    self._advance(time_step, i, chosen)
        self.current[0] = -1
        self._done = time_step.terminated | time_step.truncated
        return time_step

    @override
    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        with self._watchdog:
            for i in np.flatnonzero(chosen).tolist():
                self.current[0] = i
                self._begin(time_step, i, None)
        self.current[0] = -1

    def _begin(self, time_step: TimeStep, i: int, seed: int | None) -> None:
        """Start an episode of environment `i`, seeded unless None; write its first step."""

    def _advance(self, time_step: TimeStep, i: int, action: Any) -> None:
        """Step environment `i`, and write the result into its part of `time_step`."""
