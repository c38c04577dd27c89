"""DeepMind Lab (Beattie et al. 2016): `lab:LEVEL` as a Gymnasium environment.

The package `deepmind_lab` is built from source; docs/first-person.md has the commands.
"""

import difflib
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Environment
from seedbed.envs.first_person import SEEDS, FirstPersonEnv
from seedbed.envs.level_cache import LevelCache
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install

# The nine actions of IMPALA (Espeholt et al. 2018, appendix D), which SEED takes (section 4.1).
# Columns: look right, look up, strafe right, move forward, fire, jump, crouch.
ACTIONS: NDArray[np.intc] = np.array(
    [
        (0, 0, 0, 1, 0, 0, 0),  # forward
        (0, 0, 0, -1, 0, 0, 0),  # backward
        (0, 0, -1, 0, 0, 0, 0),  # strafe left
        (0, 0, 1, 0, 0, 0, 0),  # strafe right
        (-20, 0, 0, 0, 0, 0, 0),  # look left
        (20, 0, 0, 0, 0, 0, 0),  # look right
        (-20, 0, 0, 1, 0, 0, 0),  # forward and look left
        (20, 0, 0, 1, 0, 0, 0),  # forward and look right
        (0, 0, 0, 0, 1, 0, 0),  # fire
    ],
    np.intc,
)
PICTURE = "RGB_INTERLEAVED"
FRAMES_PER_SECOND = 60
# Levels below `contributed/dmlab30`, which go by their own name.
DMLAB_30_FOLDER = "contributed/dmlab30"
DMLAB_30 = (
    *("explore_goal_locations_large", "explore_goal_locations_small"),
    *("explore_object_locations_large", "explore_object_locations_small"),
    *("explore_object_rewards_few", "explore_object_rewards_many"),
    *("explore_obstructed_goals_large", "explore_obstructed_goals_small"),
    *("language_answer_quantitative_question", "language_execute_random_task"),
    *("language_select_described_object", "language_select_located_object"),
    *("lasertag_one_opponent_large", "lasertag_one_opponent_small"),
    *("lasertag_three_opponents_large", "lasertag_three_opponents_small"),
    *("natlab_fixed_large_map", "natlab_varying_map_randomized", "natlab_varying_map_regrowth"),
    *("psychlab_arbitrary_visuomotor_mapping", "psychlab_continuous_recognition"),
    *("psychlab_sequential_comparison", "psychlab_visual_search"),
    *("rooms_collect_good_objects_test", "rooms_collect_good_objects_train"),
    *("rooms_exploit_deferred_effects_test", "rooms_exploit_deferred_effects_train"),
    *("rooms_keys_doors_puzzle", "rooms_select_nonmatching_object", "rooms_watermaze"),
    *("skymaze_irreversible_path_hard", "skymaze_irreversible_path_varied"),
)
# Levels of the first release.
OTHERS = (
    *("lt_chasm", "lt_hallway_slope", "lt_horseshoe_color", "lt_space_bounce_hard"),
    *("nav_maze_random_goal_01", "nav_maze_random_goal_02", "nav_maze_random_goal_03"),
    *("nav_maze_static_01", "nav_maze_static_02", "nav_maze_static_03"),
    *("seekavoid_arena_01", "stairway_to_melon"),
)


class LabEnv(FirstPersonEnv):
    """One level of DeepMind Lab; observations [height, width, 3] uint8, nine actions.

    An episode ends by the level's clock or by what happens in it, and Lab does not tell which.
    Both are terminations, as in IMPALA and SEED. Lab shows no picture after the end, so the last
    step repeats the picture before it. A step counts `action_repeat` frames even if the episode
    ends within it; Lab's own `num_steps` does, too.

    Args:
        lab: the simulator, a `deepmind_lab.Lab` with the observation `RGB_INTERLEAVED`.
        height: of a picture.
        width: of a picture.
        action_repeat: frames a step.
        seeds: number of different seeds of episodes.
    """

    def __init__(self, lab: Any, height: int, width: int, action_repeat: int, seeds: int) -> None:
        super().__init__(height, width, len(ACTIONS), action_repeat, FRAMES_PER_SECOND)
        self._lab = lab
        self._seeds = seeds

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        # Without a seed, Lab takes one from the second in which its process started.
        self._lab.reset(seed=int(self.np_random.integers(self._seeds)))
        self._picture = self._lab.observations()[PICTURE]
        return self._picture, {}

    @override
    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        reward = self._lab.step(ACTIONS[action], num_steps=self.action_repeat)
        running = self._lab.is_running()
        if running:
            self._picture = self._lab.observations()[PICTURE]
        return self._picture, reward, not running, False, {}

    @override
    def close(self) -> None:
        self._lab.close()


def make(environment: Environment) -> LabEnv:
    """Make one environment of a `lab:` id.

    Args:
        environment: the experiment's section.

    Raises:
        SeedbedError: ENVIRONMENT, the package is missing, or Lab refuses the level or a setting;
            CONFIG, there is no folder for the level cache.
    """
    settings = environment.lab
    try:
        import deepmind_lab
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"{environment.id}: importing deepmind_lab failed: {error}. No package index has "
            "DeepMind Lab: build its wheel with Bazel (docs/first-person.md has the commands), "
            f"install what it needs ({how_to_install('lab')}), and then the wheel: "
            f"{sys.executable} -m pip install deepmind_lab-1.0-py3-none-any.whl",
        ) from error
    cache = LevelCache(Path(settings.level_cache)) if settings.level_cache else None
    size = {"width": str(settings.width), "height": str(settings.height)}
    try:
        lab = deepmind_lab.Lab(
            level_path(environment.id),
            [PICTURE],
            config={**settings.config, **size},
            renderer=settings.renderer,
            level_cache=cache,
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment.id!r}: DeepMind Lab refuses it: {error}"
            f"{_advice(environment)}",
        ) from error
    return LabEnv(
        lab,
        settings.height,
        settings.width,
        settings.action_repeat,
        settings.episode_seeds or SEEDS,
    )


def level_path(environment_id: str) -> str:
    """Return a level's path below Lab's folder of levels.

    Args:
        environment_id: `lab:` and a level of DMLab-30 by its name, or any other one by its path.

    Raises:
        SeedbedError: the path leads out of Lab's folder.
    """
    level = environment_id.removeprefix("lab:")
    if not level or level.startswith("/") or ".." in level.split("/"):
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment_id!r} names no level below Lab's own folder: take one "
            f"of DMLab-30, such as lab:{DMLAB_30[1]}, or environment.lab.config.levelDirectory for "
            "levels of your own",
        )
    return f"{DMLAB_30_FOLDER}/{level}" if level in DMLAB_30 else level


def _advice(environment: Environment) -> str:
    """Return the nearest levels, where the level is none that is known."""
    known = (*DMLAB_30, *OTHERS)
    level = environment.id.removeprefix("lab:")
    if level in known:
        return ""
    near = difflib.get_close_matches(level.rpartition("/")[2], known, n=3)
    if near:
        return f"; did you mean {', '.join(f'lab:{name}' for name in near)}?"
    return (
        f"; there are {', '.join(known)}, and any other level by its path below "
        "game_scripts/levels, such as lab:tests/empty_room_test"
    )
