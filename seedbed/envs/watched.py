"""Vector environment whose calls have a deadline and a name, for `seedbed check env`."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.envs.watchdog import Watchdog
from seedbed.spec import TimeStep, VectorEnv


class Deadline:
    """Deadline of each call; the process ends where one is late.

    Args:
        seconds: longest time of a call.
        on_late: called with a sentence that names the call.
    """

    def __init__(self, seconds: float, on_late: Callable[[str], None]) -> None:
        self.call = ""

        def late(busy_s: float) -> None:
            on_late(f"{self.call} has not come back for {busy_s:.0f} s (--timeout {seconds:g})")

        self.watchdog = Watchdog("the environment", seconds, late)


class WatchedVectorEnv(VectorEnv):
    """Vector environment, each of whose calls is watched and counted.

    Args:
        make: makes the vector environment.
        deadline: of its calls.
    """

    def __init__(self, make: Callable[[], VectorEnv], deadline: Deadline) -> None:
        self._deadline, self._steps = deadline, 0
        with self._named("making the environments"):
            self._env = make()
        self.spec, self.num_envs = self._env.spec, self._env.num_envs

    def _named(self, call: str) -> Watchdog:
        self._deadline.call = call
        return self._deadline.watchdog

    @override
    def reset(self) -> TimeStep:
        self._steps = 0
        with self._named("reset"):
            return self._env.reset()

    @override
    def step(self, action: NDArray[np.int32]) -> TimeStep:
        self._steps += 1
        with self._named(f"step {self._steps} after reset"):
            time_step = self._env.step(action)
        self.failures = self._env.failures
        return time_step

    @override
    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        with self._named("reset"):
            self._env.restart(time_step, chosen)

    @override
    def close(self) -> None:
        with self._named("close"):
            self._env.close()
