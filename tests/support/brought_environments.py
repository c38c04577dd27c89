"""Environments as people bring them: each has one habit that public bug reports tell of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

LARGEST = np.finfo(np.float32).max


class Plain(gymnasium.Env[Any, Any]):
    """Episodes of 20 steps, reward 1 each."""

    metadata: Any = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space: Any = Box(-1, 1, (2,), np.float32)
    action_space: Any = Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.t = 0

    def observe(self) -> Any:
        return np.zeros(2, np.float32)

    def info(self) -> Any:
        return {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observe(), 1.0, self.t >= 20, False, self.info()

    def render(self) -> Any:
        return np.zeros((64, 64, 3), np.uint8)


# --- processes and calls ---------------------------------------------------------------------


class Starts(Plain):
    """Starts a simulator, which holds this process's streams, and never ends it."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.simulator = subprocess.Popen(["sleep", "300"])
        Path(file).write_text(str(self.simulator.pid))


class ExitsInStep(Plain):
    """Ends the interpreter, as a closed window does."""

    def step(self, action: Any) -> Any:
        sys.exit()


class SignalsItself(Plain):
    """Ends its process as `kill` does."""

    def step(self, action: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)


class SignalsItsGroup(Plain):
    """Interrupts what it takes for its children."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        os.killpg(0, signal.SIGINT)


class ExitsNowAndThen(Plain):
    """Ends the interpreter once, in its twentieth episode."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        type(self).episodes += 1
        if self.episodes == 20:
            sys.exit()
        return super().reset(seed=seed, options=options)


class ExitsInReset(Plain):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise SystemExit(0)


class ExitsWhenMade(Plain):
    def __init__(self) -> None:
        sys.exit("no display")


class InterruptsItself(Plain):
    """Raises what is no Exception."""

    def step(self, action: Any) -> Any:
        raise GeneratorExit


class ExitsInClose(Plain):
    def close(self) -> None:
        sys.exit(3)


class Handler(Plain):
    """Handles a signal, which the main thread alone may do."""

    def __init__(self) -> None:
        super().__init__()
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)


class RaisesKeyboardInterrupt(Plain):
    """No one has pressed Ctrl-C."""

    def step(self, action: Any) -> Any:
        raise KeyboardInterrupt


class RaisesWithoutWords(Plain):
    """Its exception cannot be printed."""

    def step(self, action: Any) -> Any:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ValueError("no words")

        raise Mute


PygameError = type("error", (RuntimeError,), {"__module__": "pygame"})


class SharesPygame(Plain):
    """A library of which a process has one."""

    def step(self, action: Any) -> Any:
        raise PygameError("Surface is not initialized")


class Alone(Plain):
    """Is the only one of its process."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        if self.made > 1:
            raise RuntimeError("the port 5005 is in use: another simulator runs")

    def close(self) -> None:
        type(self).made -= 1


class HangsIn(Plain):
    """Does not come back from one call; without the interpreter lock, or with it."""

    def __init__(self, call: str, file: str = "") -> None:
        super().__init__()
        self.call, self.file = call, file
        self.hang("construction")

    def hang(self, call: str) -> None:
        if call == self.call and self.file:
            Path(self.file).write_text(str(os.getpid()))
        if call == self.call:
            threading.Event().wait()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.hang("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.hang("step")
        return super().step(action)

    def close(self) -> None:
        self.hang("close")


# --- numbers ---------------------------------------------------------------------------------


class Wide(Plain):
    """Returns 16 bits where its space has 8."""

    observation_space: Any = Box(0, 255, (3,), np.uint8)

    def observe(self) -> Any:
        return np.array([255, 256, 511], np.uint16)


class Negative(Wide):
    """Returns signed bytes where its space has unsigned ones."""

    def observe(self) -> Any:
        return np.array([1, -1, 0], np.int8)


class NotABit(Wide):
    observation_space = MultiBinary(3)

    def observe(self) -> Any:
        return np.array([0, 2, 1])


class Large(Wide):
    """Returns float64 beyond float32."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def observe(self) -> Any:
        return np.array([1e39, 0, self.t])


class Clock(Wide):
    """Counts beyond what float32 tells apart."""

    observation_space = Box(0, 2**62, (3,), np.int64)

    def observe(self) -> Any:
        return np.array([2**24 + 1, 0, self.t])


class Outside(Wide):
    """Is in none of its categories."""

    observation_space = Dict({"card": Discrete(52)})

    def observe(self) -> Any:
        return {"card": 52}


class TooMuch(Plain):
    """Rewards that every learner refuses."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, 1e7, *rest


class RewardOfShape1(Plain):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, np.array([reward]), *rest


class RewardOfShape2(Plain):
    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, [reward, reward], *rest


class RewardIsNone(Plain):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, None, *rest


class RewardIsMasked(Plain):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, np.ma.masked, *rest


class ObservationIsMasked(Plain):
    def observe(self) -> Any:
        return np.ma.array([0, 0.5], mask=[True, False], dtype=np.float32)


class Bright(Plain):
    """A picture of bytes whose space is of 0 to 1."""

    observation_space: Any = Box(0, 1, (16, 16, 3), np.float32)

    def observe(self) -> Any:
        return np.full((16, 16, 3), 200, np.float32)


class Dark(Plain):
    """A picture of 0 to 1 whose space is of bytes."""

    observation_space: Any = Box(0, 255, (16, 16, 3), np.float32)

    def observe(self) -> Any:
        return np.ones((16, 16, 3), np.float32)


class StopsClocks(Plain):
    """A simulator with a clock of its own."""

    clocks = (time.time, time.monotonic, time.perf_counter)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        time.time = time.monotonic = time.perf_counter = lambda: 5.0
        return super().reset(seed=seed)

    def close(self) -> None:
        time.time, time.monotonic, time.perf_counter = self.clocks


class DrawsNothing(Plain):
    def render(self) -> Any:
        raise RuntimeError("no screen")


class DoneIsText(Plain):
    def step(self, action: Any) -> Any:
        observation, reward, _, *rest = super().step(action)
        return observation, reward, "False", *rest


class DoneIsNumpy(Plain):
    def step(self, action: Any) -> Any:
        observation, reward, over, cut, info = super().step(action)
        return observation, np.float64(reward), np.bool_(over), np.array([cut]), info


class TrueOrFalse(Plain):
    """Has a flag for a category, as Gymnasium allows."""

    observation_space = Discrete(2)

    def observe(self) -> Any:
        return self.t % 2 == 0


class Unbounded(Plain):
    action_space = Box(-np.inf, np.inf, (1,), np.float32)


def advised() -> Any:
    """Follow the advice that `Unbounded` gets."""
    space = Box(-1, 1, (1,), np.float32)
    return gymnasium.wrappers.TransformAction(Unbounded(), lambda action: action, space)


class AllOfFloat64(Plain):
    """Has bounds whose distance is no float64."""

    action_space = Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (1,), np.float64)


class HardlyBounded(Plain):
    action_space = Box(-LARGEST, LARGEST, (1,), np.float32)


def _missing(_: Any) -> Any:
    raise NotImplementedError("which size?")


class WithoutSpaces(Plain):
    """Leaves its spaces to a subclass."""

    observation_space = property(_missing)


class SpacesOfOld(Plain):
    """Has a space of another library."""

    action_space = slice(2)


class TooManyKinds(Plain):
    observation_space = Dict({"word": Discrete(50_000)})

    def observe(self) -> Any:
        return {"word": 0}


class ChannelsFirst(Plain):
    observation_space = Box(0, 255, (4, 84, 84), np.uint8)

    def observe(self) -> Any:
        return np.zeros((4, 84, 84), np.uint8)


# --- the API and info ------------------------------------------------------------------------


class ResetOfOld(Plain):
    """Returns the observation alone, whose two numbers unpack as two values."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observe()


class StepOfOld(Plain):
    def step(self, action: Any) -> Any:
        observation, reward, over, _, info = super().step(action)
        return observation, reward, over, info


class InfoIsNone(Plain):
    def info(self) -> Any:
        return None


class OddInfo(Plain):
    """Uses keys of wrappers for something else."""

    def info(self) -> Any:
        return {
            "lives": {"red": 3, "blue": 2},
            "TimeLimit.truncated": "no",
            "episode": [1, 2],
            "final_observation": object(),
            "action_mask": "unused",
            7: None,
        }


class LivesAndNumber(Plain):
    def info(self) -> Any:
        return {"lives": 3, 7: None}


class LivesAreText(Plain):
    def info(self) -> Any:
        return {"lives": "three"}


class LivesOfNumpy(Plain):
    """Loses a life at each fifth step."""

    def info(self) -> Any:
        return {"lives": np.array([4 - self.t // 5])}


class OtherSpacesEachTime(Plain):
    """Draws its size when it is made."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.observation_space = Box(-1, 1, (1 + self.made % 2,), np.float32)

    def observe(self) -> Any:
        return np.zeros(self.observation_space.shape, np.float32)


# --- pictures of a video ---------------------------------------------------------------------


class Renders(Plain):
    """Returns what it is given from `render`."""

    def __init__(self, what: str = "", fps: Any = 30, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.what = what
        self.metadata = None if fps == "none" else {"render_fps": fps}

    def render(self) -> Any:
        shapes: dict[str, Any] = {
            "": np.zeros((64, 64, 3), np.uint8),
            "nothing": None,
            "floats": np.zeros((64, 64, 3)),
            "a list": [np.zeros((64, 64, 3), np.uint8)],
            "gray": np.zeros((64, 64), np.uint8),
            "rgba": np.zeros((64, 64, 4), np.uint8),
            "empty": np.zeros((0, 64, 3), np.uint8),
            "text": "a picture",
        }
        if self.what == "exits":
            sys.exit(0)
        return shapes[self.what]


# --- settings --------------------------------------------------------------------------------


def checked(**kwargs: Any) -> Any:
    """Make one if the settings are as they were written."""
    wanted = {"level": 10, "day": "2024-05-01", "rates": {"1": 0.5}, "on": "yes", "step": 1e-4}
    if repr(kwargs) != repr(wanted):
        raise ValueError(f"given {kwargs}")
    return Plain()
