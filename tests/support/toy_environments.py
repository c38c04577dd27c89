"""Small environments whose every number is known beforehand."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete


class Counter(gymnasium.Env[Any, Any]):
    """Observation: [episode, step in it, a random number drawn at reset, the last action].

    Episode k ends after `length + k` steps: terminated, truncated or both by turns. The reward
    is the step number.
    """

    def __init__(self, length: int = 3, start: int = 0, lives: bool = False) -> None:
        self.observation_space = Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = Discrete(5, start=start)
        self.length, self.start, self.lives = length, start, lives
        self.episode, self.t, self.draw, self.closed = -1, 0, 0.0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.episode = -1
        self.episode += 1
        self.t, self.draw = 0, self.np_random.random()
        return self._see(-1), self._info()

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.t += 1
        over = self.t >= self.length + self.episode
        way = self.episode % 3
        return self._see(action), float(self.t), over and way != 1, over and way != 0, self._info()

    def close(self) -> None:
        self.closed = True

    def _see(self, action: int) -> Any:
        return np.array([self.episode, self.t, self.draw, action], np.float64)

    def _info(self) -> dict[str, Any]:
        return {"lives": 3 - self.t // 2} if self.lives else {}


class Faulty(Counter):
    """A Counter that does `fault` at step 2 of its first episode. `made` keeps every one."""

    made: list[Faulty] = []  # noqa: RUF012

    def __init__(self, fault: str = "raise", **kwargs: Any) -> None:
        super().__init__(length=4, **kwargs)
        self.fault = fault
        self.seeds: list[int | None] = []
        Faulty.made.append(self)
        if fault == "raise in make" and len(Faulty.made) == 2:
            raise ConnectionError("the licence server is busy")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        if self.fault == "raise in reset":
            raise OSError("the simulator did not start")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.episode or self.t != 2:
            return observation, reward, terminated, truncated, info
        match self.fault:
            case "fourth one raises":
                if self is Faulty.made[3]:
                    raise RuntimeError("the simulator crashed")
            case "raise":
                raise RuntimeError("the simulator crashed")
            case "nan reward":
                reward = float("nan")
            case "huge reward":
                reward = 1e39  # finite, but not in float32
            case "nan observation":
                observation[1] = np.nan
            case "shape":
                observation = observation[:3]
            case "dtype":
                observation = observation.astype(np.complex128)
            case "four values":
                return observation, reward, terminated, info
            case "close raises" | "raise in make":
                raise RuntimeError("the simulator crashed")
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        super().close()
        if self.fault == "close raises":
            raise OSError("the simulator is gone")


class Spaced(gymnasium.Env[Any, Any]):
    """Any spaces, and an optional action repeat."""

    def __init__(self, observation: Any, action: Any, repeat: Any = None) -> None:
        self.observation_space, self.action_space = observation, action
        if repeat is not None:
            self.action_repeat = repeat

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: int) -> Any:
        return self.observation_space.sample(), 1, False, False, {}


class Stuck(Counter):
    """Never comes back from its second step."""

    def step(self, action: int) -> Any:
        if self.t == 1:
            time.sleep(1000)
        return super().step(action)


def not_an_environment() -> object:
    return [1, 2]


ENVIRONMENT = 7  # a name that cannot be called


class OnlyValid(gymnasium.Env[Any, Any]):
    """Ends the process's patience with any action that its mask does not allow."""

    def __init__(self, parts: bool = False) -> None:
        sizes = [3, 2] if parts else [5]
        self.action_space = MultiDiscrete(sizes) if parts else Discrete(5)
        self.observation_space = Dict({"x": Discrete(3), "action_mask": MultiBinary(5)})
        self._mask = np.ones(5, np.int8)
        self._offsets = np.cumsum([0, *sizes[:-1]])

    def _observe(self) -> Any:
        self._mask = self.np_random.integers(0, 2, 5).astype(np.int8)
        self._mask[[2, 4]] = 1  # one of each part
        self._mask[0] = 0
        return {"x": 0, "action_mask": self._mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        if not self._mask[self._offsets + np.atleast_1d(action)].all():
            raise ValueError(f"action {action} is not valid: {self._mask}")
        return self._observe(), 0.0, bool(self.np_random.random() < 0.1), False, {}
