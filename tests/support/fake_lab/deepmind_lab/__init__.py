"""What stands for the package `deepmind_lab` in tests: its API, and its errors.

The rules are those of Lab's C module (`dmlab_module.c`): types are checked where they are there,
nothing is answered after an episode's end, and an exception of the level cache ends the reset. The
world itself is a toy: a picture says which map, frame and action it shows.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

LEVELS = (
    "contributed/dmlab30/explore_goal_locations_small",
    "contributed/dmlab30/rooms_watermaze",
    "seekavoid_arena_01",
    "tests/empty_room_test",
)
OBSERVATIONS = ("RGB_INTERLEAVED", "INSTR")
# Levels have seconds; ten frames to an episode are enough for a test.
FRAMES = 22
BOUNDS = np.array([512, 512, 1, 1, 1, 1, 1])
MAPS = 100_000


class Lab:
    """One level. `made` is every object since the last clear, for tests."""

    made: ClassVar[list[Lab]] = []

    def __init__(
        self,
        level: str,
        observations: list[str],
        config: dict[str, str] | None = None,
        renderer: str = "software",
        level_cache: Any = None,
        temp_folder: str | None = None,
    ) -> None:
        _wants(level, str)
        _wants(observations, list)
        _wants(config if config is not None else {}, dict)
        self.config = {"width": "320", "height": "240", "fps": "60", **(config or {})}
        if renderer not in ("", "hardware", "software"):
            raise RuntimeError(f'Failed to set renderer "{renderer}"')
        for key, value in self.config.items():
            for text in (key, value):
                if not isinstance(text, str):
                    raise TypeError("bad argument type for built-in operation")
        for key in ("width", "height", "fps"):
            if not self.config[key].isdigit():
                raise RuntimeError(f"Failed to apply setting '{key} = {self.config[key]}'")
        if level not in LEVELS:
            raise RuntimeError(f'Failed to init environment - "level {level} not found"')
        for name in observations:
            if name not in OBSERVATIONS:
                raise ValueError(f"Unknown observation '{name}'.")
        self.level, self.names, self.renderer = level, observations, renderer
        self.cache, self.closed, self.compiled = level_cache, False, 0
        self.seeds: list[int | None] = []
        self._running = False
        self._frame = self._steps = self._map = 0
        self._action = np.zeros(7, np.intc)
        Lab.made.append(self)

    def reset(self, episode: int = -1, seed: int | None = None) -> bool:
        self._open()
        self.seeds.append(seed)
        if seed is None:
            seed = int(time.time())
        if not isinstance(seed, int):
            raise ValueError(f"'seed' must be int or None, was '{type(seed).__name__}'.")
        self._running = False
        self._random = np.random.default_rng(seed)
        self._map = int(self._random.integers(MAPS))
        self._make_map()
        self._frame = self._steps = 0
        self._length = FRAMES + int(self._random.integers(12))
        self._action = np.zeros(7, np.intc)
        self._running = True
        return True

    def step(self, action: np.ndarray, num_steps: int = 1) -> float:
        self._open()
        if not isinstance(action, np.ndarray):
            raise TypeError(f"argument 1 must be numpy.ndarray, not {type(action).__name__}")
        if not self._running:
            raise RuntimeError("Environment in wrong status to advance.")
        if action.shape != (7,):
            raise ValueError("action must have shape (7)")
        if action.dtype != np.intc:
            raise ValueError("action must have dtype np.intc")
        if (abs(action) > BOUNDS).any():
            raise ValueError('Failed to advance environment "action out of bounds"')
        self._action = action.copy()
        reward = 0.0
        for _ in range(num_steps):
            self._frame += 1
            reward += 0.25 * float(action[3]) + 0.01 * self._frame
            if self._frame >= self._length:
                self._running = False
                break
        # As Lab does, whatever was left of the step.
        self._steps += num_steps
        return reward

    def is_running(self) -> bool:
        return self._running

    def observations(self) -> dict[str, Any]:
        self._open()
        if not self._running:
            raise RuntimeError("Environment in wrong status for call to observations()")
        shape = (int(self.config["height"]), int(self.config["width"]), 3)
        picture = np.random.default_rng((self._map, self._frame)).integers(0, 256, shape, np.uint8)
        picture[0, 0] = self._frame, self._map % 251, 0
        picture[0, 1:8, 0] = self._action.astype(np.int64) % 256
        every = {"RGB_INTERLEAVED": picture, "INSTR": "go to the picture"}
        return {name: every[name] for name in self.names}

    def num_steps(self) -> int:
        return self._steps

    def close(self) -> bool:
        was_open, self.closed, self._running = not self.closed, True, False
        return was_open

    def _open(self) -> None:
        if self.closed:
            raise RuntimeError("the environment is closed")

    def _make_map(self) -> None:
        key = f"{self.level.rpartition('/')[2]}_noaas_{self._map:032x}"
        with TemporaryDirectory() as folder:
            pk3 = Path(folder) / "map.pk3"
            if self.cache is not None and self.cache.fetch(key, str(pk3)):
                if pk3.read_text() != f"map {self._map}":
                    raise RuntimeError(f'Failed to start environment - "{key} is no pk3"')
                return
            self.compiled += 1
            pk3.write_text(f"map {self._map}")
            if self.cache is not None:
                self.cache.write(key, str(pk3))


def _wants(value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"argument must be {kind.__name__}, not {type(value).__name__}")
