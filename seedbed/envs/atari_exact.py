"""Atari, exact: Table 9 of the paper to the letter, in Python on `ale_py.ALEInterface`.

Images are resized bilinearly. An episode starts with 1 to 30 random no-ops, drawn uniformly and not
repeated. A step repeats the action on 4 frames, takes the maximum of the last two gray frames, and
resizes it. The table leaves two things open: the first observation of an episode is the screen of
the last no-op alone, and the 108,000 frames of an episode do not include the no-ops.
"""

from collections.abc import Sequence

import ale_py
import numpy as np
from ale_py import roms
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Atari, Environment
from seedbed.envs.atari_games import atari_spec, rom_name
from seedbed.envs.resize import BilinearResize
from seedbed.envs.sequential import SequentialVectorEnv
from seedbed.envs.watchdog import DEFAULT_S
from seedbed.runtime.calls import CallRecord
from seedbed.spec import TimeStep, mark_first


class ExactAtariVectorEnv(SequentialVectorEnv):
    """E games of one ROM. Observations are [E, height, width, 1] uint8 gray.

    Args:
        environment: the experiment's section.
        seeds: [E], one for each environment.
        timeout_s: as of `SequentialVectorEnv`.
        record: as of `SequentialVectorEnv`.
        first: as of `SequentialVectorEnv`.
    """

    def __init__(
        self,
        environment: Environment,
        seeds: Sequence[int],
        timeout_s: float | None = DEFAULT_S,
        record: CallRecord | None = None,
        first: int = 0,
    ) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        rom = str(roms.get_rom_path(rom_name(environment.id)))
        self._games = [_Game(rom, environment.atari, seed) for seed in seeds]
        self.spec = atari_spec(environment, self._games[0].actions)
        super().__init__(environment.id, seeds, timeout_s, record, first)

    @override
    def _begin(self, time_step: TimeStep, i: int, seed: int | None) -> None:
        game = self._games[i]
        if seed is not None:
            game.seed(seed)
        game.reset()
        time_step.observation[i, ..., 0] = game.observation()
        mark_first(time_step, i)

    @override
    def _advance(self, time_step: TimeStep, i: int, action: int) -> None:
        game = self._games[i]
        lives = game.lives
        time_step.reward[i] = game.step(action)
        time_step.life_lost[i] = game.lives < lives
        time_step.terminated[i] = game.over
        time_step.truncated[i] = game.cut
        time_step.observation[i, ..., 0] = game.observation()

    def rgb(self, i: int) -> NDArray[np.uint8]:
        """Return the present screen of an environment: [210, 160, 3] uint8, or [250, 160, 3]."""
        return self._games[i].rgb()

    @override
    def close(self) -> None:
        super().close()
        self._games = []


class _Game:
    """One emulator, with its no-ops, action repetition and preprocessing."""

    def __init__(self, rom: str, atari: Atari, seed: int) -> None:
        self._rom = rom
        self._atari = atari
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", atari.sticky_action_probability)
        self._unused_seed: int | None = None  # loaded with it, not played yet
        self.seed(seed)
        self._set = (
            self._ale.getLegalActionSet()
            if atari.full_action_space
            else self._ale.getMinimalActionSet()
        )
        self.actions = len(self._set)
        height, width = self._ale.getScreenDims()
        # The last two frames, written in turns.
        self._screens = np.zeros((2, height, width), np.uint8)
        self._newest = 0
        self._resize = BilinearResize((height, width), (atari.height, atari.width))
        self._frames = 0
        self.lives = 0
        self.over = self.cut = False

    def seed(self, seed: int) -> None:
        """Seed the emulator's random numbers (sticky actions) and the no-ops."""
        if seed == self._unused_seed:
            return
        self._unused_seed = seed
        self._ale.setInt("random_seed", seed)
        # Reads the seed.
        self._ale.loadROM(self._rom)
        self._random = np.random.default_rng(seed)

    def reset(self) -> None:
        ale = self._ale
        self._unused_seed = None
        ale.reset_game()
        most = self._atari.noop_max
        for _ in range(self._random.integers(1, most + 1) if most else 0):
            ale.act(ale_py.Action.NOOP)
            if ale.game_over():
                ale.reset_game()
        self._screens[:] = 0
        self._read_screen()
        self._frames = 0
        self.lives = ale.lives()
        self.over = self.cut = False

    def step(self, action: int) -> float:
        """Repeat an action, at most until the episode ends; return the sum of the rewards."""
        ale, chosen, reward = self._ale, self._set[action], 0
        for _ in range(self._atari.frame_skip):
            reward += ale.act(chosen)
            self._frames += 1
            self._read_screen()
            self.over = ale.game_over()
            self.cut = not self.over and self._frames >= self._atari.max_frames_per_episode
            if self.over or self.cut:
                break
        self.lives = ale.lives()
        return float(reward)

    def observation(self) -> NDArray[np.uint8]:
        """Return the resized maximum of the last two frames, [height, width]."""
        return self._resize(np.maximum(self._screens[0], self._screens[1]))

    def rgb(self) -> NDArray[np.uint8]:
        return np.array(self._ale.getScreenRGB())

    def _read_screen(self) -> None:
        # Called for every frame, because a game may end on any of the four.
        self._newest ^= 1
        self._ale.getScreenGrayscale(self._screens[self._newest])
