"""Environments that have bad days, for `environment.id: tests.support.faulty_environments:NAME`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Line(gymnasium.Env[Any, Any]):
    """Episodes of ten steps, reward 1 each. `fault(t)` is called at each step."""

    def __init__(self) -> None:
        self.observation_space = Box(-1, 1, (3,), np.float32)
        self.action_space = Discrete(2)
        self.t = self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        self.steps += 1
        self.fault()
        return self._see(), self.reward(), self.t >= 10, False, {}

    def fault(self) -> None:
        """Nothing."""

    def reward(self) -> float:
        return 1.0

    def _see(self) -> Any:
        return np.array([self.t / 10, 1, 0], np.float32)


class RaisesNowAndThen(Line):
    """Once in a few hundred steps."""

    def fault(self) -> None:
        if random.random() < 0.003:
            raise OSError("the simulator crashed")


class RaisesAlways(Line):
    """At the fourth step, which the probe of an experiment does not reach."""

    def fault(self) -> None:
        if self.steps > 3:
            raise OSError("the simulator does not start")


class Hangs(Line):
    """At its fifth step, for ever."""

    def fault(self) -> None:
        if self.steps == 5:
            print("now it hangs", file=sys.stderr, flush=True)
            threading.Event().wait()


class Explodes(Line):
    """Once `now` is set its rewards are finite, but their squares are not."""

    now = threading.Event()

    def reward(self) -> float:
        return 3e38 if self.now.is_set() else 1.0


class ExplodesOnce(Line):
    """As `Explodes`, at the one step of any process that finds the file, which goes by it."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = Path(file)

    def reward(self) -> float:
        try:
            self.file.unlink()
        except FileNotFoundError:
            return 1.0
        return 3e38


class Troubled(Line):
    """Does what the file `folder`/its first seed says, at the step that finds it; the file goes."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder, self.file, self.trouble = Path(folder), Path(), ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.file = self.folder / str(seed)
        self.trouble = ""
        return super().reset(seed=seed, options=options)

    def fault(self) -> None:
        try:
            self.trouble = self.file.read_text()
            self.file.unlink()
        except FileNotFoundError:
            return
        match self.trouble:
            case "raise":
                raise OSError("the simulator crashed")
            case "hang":
                threading.Event().wait()
            case "be killed":
                # By another process: a signal of its own to its process is refused.
                subprocess.run(["kill", "-9", str(os.getpid())], check=True)
            case "leave an heir":  # which holds whatever the worker had open
                if os.fork():
                    os._exit(7)
                time.sleep(10)
                os._exit(0)

    def reward(self) -> float:
        return float("nan") if self.trouble == "nan" else 1.0

    def _see(self) -> Any:
        return super()._see()[: 2 if self.trouble == "shape" else 3]


class Counted(Line):
    """Each observation has its number, its count of steps, and the action that led to it;
    the reward is a thousandth of the step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = Box(-1, np.inf, (3,), np.float32)
        self.number = random.SystemRandom().randrange(1, 10**6)
        self.made = 0
        self.action = -1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.made += 1
        self.action = -1
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.made += 1
        self.action = int(action)
        return super().step(action)

    def reward(self) -> float:
        return self.made / 1000

    def _see(self) -> Any:
        return np.array([self.number, self.made, self.action], np.float32)
