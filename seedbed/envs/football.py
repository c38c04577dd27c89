"""Google Research Football (Kurach et al. 2020, arXiv:1907.11180) as a Gymnasium environment.

One agent controls the active player of the left team, with the 19 actions of the default set, and
sees the Super Mini Map: four planes of bits with the left team, the right team, the ball and the
active player. An action lasts one step of the game, as in Table 7 of the SEED paper.

The end of a match, by a score or by time, is `terminated`: the package calls both `done`, and the
learners of both papers bootstrap from neither.
"""

import logging
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, MultiBinary
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Environment, Football
from seedbed.envs.football_scenarios import check_scenario

PLANES = 4
# Colours of a picture: grass, then each plane, a later one over an earlier one.
_GRASS = (40, 110, 50)
_COLOURS = ((220, 60, 60), (60, 90, 230), (255, 255, 255), (255, 200, 0))
_SEEDS = 2**31 - 1


class FootballEnv(gymnasium.Env[Any, Any]):
    """A match. Observations are [height, width, 4] bool.

    `reset(seed=S)` makes all that follows a function of S and of the actions. Each episode has an
    engine seed of its own, which `info["engine_seed"]` holds and `options={"engine_seed": S}` sets.
    The sides of successive matches alternate, as in the package. `info["score_reward"]` of a step
    is the reward without checkpoints.

    Args:
        scenario: such as `11_vs_11_hard_stochastic`.
        settings: size of the map, and rewards.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  # Gymnasium's own
    render_mode = "rgb_array"

    def __init__(self, scenario: str, settings: Football) -> None:
        # Imported here, because the package is an extra of few actors.
        from gfootball.env import config, football_env, wrappers
        from gfootball.env.football_action_set import get_action_set
        from gfootball.env.observation_preprocessing import generate_smm

        # A line for each episode.
        logging.getLogger("absl").setLevel(logging.WARNING)
        width, height = map(int, settings.smm.split("x"))
        self._size = (width, height)
        self.observation_space = MultiBinary([height, width, PLANES])
        self._draw = generate_smm
        # Python's own random numbers would take the place of a seed that is missing.
        self._config = config.Config({"level": scenario, "game_engine_random_seed": 0})
        self.action_space = Discrete(len(get_action_set(self._config)))
        self._match: Any = football_env.FootballEnv(self._config)
        if "checkpoints" in settings.rewards:
            self._match = wrappers.CheckpointRewardWrapper(self._match)
        self._map = np.zeros((height, width, PLANES), np.bool_)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            # The package counts on, and the sides follow from the count.
            self._config["episode_number"] = 0
        drawn = int(self.np_random.integers(_SEEDS))
        engine_seed = int((options or {}).get("engine_seed", drawn))
        self._config["game_engine_random_seed"] = engine_seed
        # The package would keep that of the first episode.
        self._config["reverse_team_processing"] = bool(engine_seed % 2)
        return self._observe(self._match.reset()), {"engine_seed": engine_seed}

    @override
    def step(self, action: int) -> tuple[NDArray[np.bool_], float, bool, bool, dict[str, Any]]:
        raw, reward, done, info = self._match.step([int(action)])
        return self._observe(raw), float(reward[0]), bool(done), False, info

    @override
    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the map, [height, width, 3] uint8."""
        picture = np.full((*self._map.shape[:2], 3), _GRASS, np.uint8)
        for plane, colour in enumerate(_COLOURS):
            picture[self._map[..., plane]] = colour
        return picture

    @override
    def close(self) -> None:
        self._match.close()

    def _observe(self, raw: Any) -> NDArray[np.bool_]:
        """Return the map of the one player, from 0 and 255 to False and True."""
        self._map = self._draw(raw, channel_dimensions=self._size)[0] != 0
        return self._map


def make(environment: Environment) -> FootballEnv:
    """Make one environment of a `football:` id.

    Args:
        environment: the experiment's section.

    Raises:
        SeedbedError: ENVIRONMENT: the package is missing, or has no such scenario.
    """
    scenario = environment.id.removeprefix("football:")
    check_scenario(scenario)
    return FootballEnv(scenario, environment.football)
