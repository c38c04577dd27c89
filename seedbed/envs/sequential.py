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
from seedbed.runtime import calls
from seedbed.runtime.calls import RESET, STEP, CallRecord
from seedbed.spec import TimeStep, VectorEnv


class SequentialVectorEnv(VectorEnv):
    """E environments in lock step, stepped in the caller's thread. Each `TimeStep` has new arrays.

    Subclasses set `spec`, and add `_begin` and `_advance`.

    Args:
        name: the `environment.id`.
        seeds: [E], one for each environment.
        timeout_s: longest time of a call before the process ends; 0: no end; None: another process
            watches.
        record: takes the call that has not come back; None: one of this process.
        first: number of the first environment.

    Attributes:
        failures: as of `VectorEnv`; the same object throughout.
        last_failure: the newest failure of an environment, in words.
    """

    last_failure = ""

    def __init__(
        self,
        name: str,
        seeds: Sequence[int],
        timeout_s: float | None,
        record: CallRecord | None = None,
        first: int = 0,
    ) -> None:
        self.num_envs = len(seeds)
        self._seeds = seeds
        self._done = np.zeros(self.num_envs, np.bool_)
        self.failures: Counter[str] = Counter()
        self._first = first
        self._record = record or calls.PROCESS.record()
        self._watchdog = None if timeout_s is None else Watchdog(name, timeout_s, self._record)

    @override
    def reset(self) -> TimeStep:
        return self._begin_all([moved_seed(seed, self.incarnation) for seed in self._seeds])

    @override
    def reset_again(self) -> TimeStep:
        return self._begin_all([None] * self.num_envs)

    def _begin_all(self, seeds: Sequence[int | None]) -> TimeStep:
        time_step = TimeStep.zeros(self.spec, self.num_envs)
        with self._record as record:
            for i, seed in enumerate(seeds):
                record.begin(RESET, self._first + i)
                self._begin(time_step, i, seed)
        self._done = np.zeros(self.num_envs, np.bool_)
        return time_step

    @override
    def step(self, action: NDArray[Any]) -> TimeStep:
        check_actions(action, self.num_envs, self.spec.action)
        time_step = TimeStep.zeros(self.spec, self.num_envs)
        with self._record as record:
            for i, chosen in enumerate(action.tolist()):
                if self._done[i]:
                    record.begin(RESET, self._first + i)
                    self._begin(time_step, i, None)
                else:
                    record.begin(STEP, self._first + i)
                    self._advance(time_step, i, chosen)
        self._done = time_step.terminated | time_step.truncated
        return time_step

    @override
    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        with self._record as record:
            for i in np.flatnonzero(chosen).tolist():
                record.begin(RESET, self._first + i)
                self._begin(time_step, i, None)

    @override
    def close(self) -> None:
        calls.PROCESS.release(self._record)
        if self._watchdog is not None:
            self._watchdog.close()

    def _begin(self, time_step: TimeStep, i: int, seed: int | None) -> None:
        """Start an episode of environment `i`, seeded unless None; write its first step."""

    def _advance(self, time_step: TimeStep, i: int, action: Any) -> None:
        """Step environment `i`, and write the result into its part of `time_step`."""
