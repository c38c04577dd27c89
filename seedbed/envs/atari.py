"""Atari, fast: `ale_py.vector_env.AtariVectorEnv`, C++ environments on C++ threads.

Preprocessing follows Table 9 of the paper, with three deviations of the library. It resizes by
area, not bilinearly. It draws no-ops uniformly from 0 .. `noop_max`, not from 1. If a game ends, or
is truncated, within the four frames of a step, the last observation is the screen of the step
before. `atari_exact` has none of them.
"""

from collections.abc import Sequence

import ale_py
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Environment
from seedbed.envs.actions import check_actions
from seedbed.envs.atari_games import atari_spec, rom_name
from seedbed.envs.seeds import moved_seed
from seedbed.envs.watchdog import DEFAULT_S, Watchdog
from seedbed.runtime import calls
from seedbed.runtime.calls import ALL, RESET, STEP
from seedbed.spec import TimeStep, VectorEnv, mark_first


class FastAtariVectorEnv(VectorEnv):
    """E games of one ROM, stepped by the library's threads.

    Observations are [E, height, width, 1] uint8 gray. The library returns new arrays at every step
    and never writes to them again.

    Args:
        environment: the experiment's section.
        threads: threads of the library.
        seeds: [E], one for each environment.
        timeout_s: longest time of a call before the process ends; 0: no end.
    """

    def __init__(
        self,
        environment: Environment,
        threads: int,
        seeds: Sequence[int],
        timeout_s: float = DEFAULT_S,
    ) -> None:
        atari = environment.atari
        self.num_envs = num_envs = len(seeds)
        self._seeds = np.asarray(seeds, np.int64)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        # Every argument is given, because reward_clipping and use_fire_reset are on by default, and
        # neither is in Table 9.
        self._games = AtariVectorEnv(
            rom_name(environment.id),
            num_envs,
            # All of them, so that index i of a batch is environment i.
            batch_size=num_envs,
            # The library would choose without regard to CPU limits.
            num_threads=threads,
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
            # The learner's device stacks the images, which saves three quarters of the bytes.
            stack_num=1,
            frameskip=atari.frame_skip,
            maxpool=True,
            # The library draws from 0 .. noop_max - 1.
            noop_max=atari.noop_max + 1,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.spec = atari_spec(environment, len(self._games.ale.get_action_set()))
        self._shape = (num_envs, *self.spec.observation.shape)
        self._lives: NDArray[np.int32] = np.zeros(num_envs, np.int32)
        self._done: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        self._record = calls.PROCESS.record()
        self._watchdog = Watchdog(environment.id, timeout_s, self._record)

    @override
    def reset(self) -> TimeStep:
        seeds = [moved_seed(int(seed), self.incarnation) for seed in self._seeds]
        return self._begin(np.asarray(seeds, np.int64))

    @override
    def reset_again(self) -> TimeStep:
        return self._begin(None)

    def _begin(self, seeds: NDArray[np.int64] | None) -> TimeStep:
        """Start all games, loaded anew where there are seeds, which takes a tenth of a second."""
        with self._record as record:
            record.begin(RESET, ALL)
            observation, info = self._games.reset(seed=seeds)
        self._lives = info["lives"]
        self._done = np.zeros(self.num_envs, np.bool_)
        time_step = TimeStep.zeros(self.spec, self.num_envs)
        time_step.first[:] = True
        return time_step._replace(observation=observation.reshape(self._shape))

    @override
    def step(self, action: NDArray[np.int32]) -> TimeStep:
        check_actions(action, self.num_envs, self.spec.action)
        with self._record as record:
            record.begin(STEP, ALL)
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

    @override
    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        with self._record as record:
            record.begin(RESET, ALL)
            observation, info = self._games.reset(options={"reset_mask": chosen})
        time_step.observation[chosen] = observation.reshape(self._shape)[chosen]
        mark_first(time_step, chosen)
        self._lives = np.where(chosen, info["lives"], self._lives)

    @override
    def close(self) -> None:
        calls.PROCESS.release(self._record)
        self._watchdog.close()
        # The library's threads end with the last reference.
        del self._games
