"""Atari, fast: `ale_py.vector_env.AtariVectorEnv`, C++ environments on C++ threads.

Preprocessing is the paper's Table 9 but for two things that the library cannot do: it resizes by
area, not bilinearly, and it draws no-ops uniformly from 0 .. `noop_max`, not from 1. Both are in
`atari_exact`. A third one to know: when a game ends, or is truncated, within the four frames of a
step, the library returns the screen of the step before as the last observation.
"""

from __future__ import annotations

from collections.abc import Sequence

import ale_py
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from seedbed.config.environment import Environment
from seedbed.envs.actions import check_actions
from seedbed.envs.atari_games import rom_name
from seedbed.envs.watchdog import Watchdog
from seedbed.spec import ArraySpec, EnvironmentSpec, TimeStep, mark_first

STEP_DEADLINE_S = 120.0  # a step of 64 environments takes about 20 ms of CPU


class FastAtariVectorEnv:
    """E games of one name in lock step. See `VectorEnv`.

    Observations are [E, height, width, 1] uint8 gray. The arrays of a `TimeStep` belong to it: the
    library hands over a fresh batch at every step and never writes to it again.
    """

    def __init__(
        self,
        environment: Environment,
        num_envs: int,
        threads: int,
        seeds: Sequence[int],
        deadline_s: float = STEP_DEADLINE_S,
    ) -> None:
        atari = environment.atari
        self.num_envs = num_envs
        self._seeds = np.asarray(seeds, np.int64)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        # Every argument of the library is written down: reward_clipping and use_fire_reset
        # are on by default, and neither is in Table 9.
        self._games = AtariVectorEnv(
            rom_name(environment.id),
            num_envs,
            batch_size=num_envs,  # row i is environment i
            num_threads=threads,  # the library ignores CPU limits, so never leave it to choose
            thread_affinity_offset=-1,
            max_num_frames_per_episode=atari.max_frames_per_episode,
            repeat_action_probability=atari.sticky_action_probability,
            full_action_space=atari.full_action_space,
            continuous=False,
            continuous_action_threshold=0.5,
            autoreset_mode=AutoresetMode.NEXT_STEP,
            img_height=atari.height,
            img_width=atari.width,
            grayscale=True,
            stack_num=1,  # stacks are made on the learner's device: four times fewer bytes
            frameskip=atari.frame_skip,
            maxpool=True,
            noop_max=atari.noop_max + 1,  # the library draws from 0 .. noop_max - 1
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.spec = EnvironmentSpec(
            name=environment.id,
            observation=ArraySpec((atari.height, atari.width, 1), "uint8"),
            actions=len(self._games.ale.get_action_set()),
            action_repeat=atari.frame_skip,
        )
        self._shape = (num_envs, *self.spec.observation.shape)
        self._lives: NDArray[np.int32] = np.zeros(num_envs, np.int32)
        self._done: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        self._watchdog = Watchdog(f"{environment.id} with {num_envs} environments", deadline_s)

    def reset(self) -> TimeStep:
        """Start every environment's first episode from its seed."""
        with self._watchdog:
            observation, info = self._games.reset(seed=self._seeds)
        self._lives = info["lives"]
        self._done = np.zeros(self.num_envs, np.bool_)
        none = np.zeros(self.num_envs, np.bool_)
        return TimeStep(
            observation=observation.reshape(self._shape),
            reward=np.zeros(self.num_envs, np.float32),
            terminated=none,
            truncated=none.copy(),
            life_lost=none.copy(),
            first=np.ones(self.num_envs, np.bool_),
        )

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        """Step every environment. Raises ValueError for an action that is out of range."""
        check_actions(action, self.num_envs, self.spec.actions)
        with self._watchdog:
            observation, reward, terminated, truncated, info = self._games.step(
                action.astype(np.int32, copy=False)
            )
        first, lives = self._done, info["lives"]
        life_lost = (lives < self._lives) & ~first
        self._lives = lives
        self._done = terminated | truncated
        return TimeStep(
            observation=observation.reshape(self._shape),  # [E, 1, H, W] -> [E, H, W, 1]
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=life_lost,
            first=first,
        )

    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        """See `VectorEnv`."""
        with self._watchdog:
            observation, info = self._games.reset(options={"reset_mask": chosen})
        time_step.observation[chosen] = observation.reshape(self._shape)[chosen]
        mark_first(time_step, chosen)
        self._lives = np.where(chosen, info["lives"], self._lives)

    def close(self) -> None:
        """Stop the library's threads: they end when the last reference goes."""
        self._watchdog.close()
        del self._games
