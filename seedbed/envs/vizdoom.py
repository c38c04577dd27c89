"""ViZDoom (Kempka et al. 2016): `vizdoom:SCENARIO` as a Gymnasium environment.

Pictures, action repetition and actions are those of DeepMind Lab in IMPALA and SEED, so that it
stands in for Lab where that cannot be installed.
"""

import difflib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Environment
from seedbed.envs.first_person import SEEDS, FirstPersonEnv
from seedbed.envs.resize import BilinearResize
from seedbed.envs.vizdoom_engine import start
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install

# The bundled scenarios for one player. (Those for several end the process without opponents.)
SCENARIOS = (
    *("basic", "deadly_corridor", "deathmatch", "defend_the_center", "defend_the_line"),
    *("health_gathering", "health_gathering_supreme", "my_way_home", "predict_position"),
    *("rocket_basic", "simpler_basic", "take_cover"),
)
TICS_PER_SECOND = 35
# The engine's smallest picture; height and width.
RENDERED = (120, 160)


class VizdoomEnv(FirstPersonEnv):
    """One scenario of ViZDoom; observations [height, width, 3] uint8.

    The scenario's time limit is a truncation, whose last picture is the true one. The engine shows
    no picture after another end, so the last step repeats the picture before it.

    A reset with a seed starts the engine anew, because some of what it draws, such as the smoke of
    a shot, follows from all that it has drawn before.

    Args:
        game: an initialized `vizdoom.DoomGame` without a time limit of its own.
        engine: path of the engine's program.
        buttons: rows of actions, [A, buttons] of 0 and 1.
        height: of a picture.
        width: of a picture.
        action_repeat: tics a step; the last step before the time limit has fewer.
        time_limit: tics of the engine's clock at which an episode is truncated; 0: none.
    """

    def __init__(
        self,
        game: Any,
        engine: str,
        buttons: list[list[int]],
        height: int,
        width: int,
        action_repeat: int,
        time_limit: int,
    ) -> None:
        super().__init__(height, width, len(buttons), action_repeat, TICS_PER_SECOND)
        self._game = game
        self._engine = engine
        self._is_new = True
        self._buttons = buttons
        self._time_limit = time_limit
        self._resize = BilinearResize(RENDERED, (height, width))

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None and not self._is_new:
            self._game.close()
            start(self._game, self._engine)
        self._is_new = False
        # The engine takes a seed at the start of an episode.
        self._game.set_seed(int(self.np_random.integers(SEEDS)))
        self._game.new_episode()
        self._observe()
        return self._picture, {}

    @override
    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        game, tics = self._game, self.action_repeat
        if self._time_limit:
            tics = min(tics, self._time_limit - game.get_episode_time())
        reward = game.make_action(self._buttons[action], tics)
        terminated = game.is_episode_finished()
        truncated = False
        if not terminated:
            self._observe()
            truncated = 0 < self._time_limit <= game.get_episode_time()
        return self._picture, reward, terminated, truncated, {}

    @override
    def close(self) -> None:
        self._game.close()

    def _observe(self) -> None:
        self._picture = self._resize(self._game.get_state().screen_buffer)


def make(environment: Environment) -> VizdoomEnv:
    """Make one environment of a `vizdoom:` id.

    Args:
        environment: the experiment's section.

    Raises:
        SeedbedError: ENVIRONMENT, the package is missing, there is no such scenario, or the engine
            does not start.
    """
    settings = environment.vizdoom
    scenario = environment.id.removeprefix("vizdoom:")
    if scenario not in SCENARIOS:
        near = difflib.get_close_matches(scenario, SCENARIOS, n=3)
        names = f"did you mean {', '.join(near)}? " if near else ""
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment.id!r}: there is no scenario {scenario!r}; {names}There "
            f"are {', '.join(SCENARIOS)}",
        )
    try:
        import vizdoom
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"{environment.id}: importing vizdoom failed: {error}. Install the extra: "
            f"{how_to_install('vizdoom')}",
        ) from error
    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path) / f"{scenario}.cfg"))
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_sound_enabled(False)
    time_limit = game.get_episode_timeout()
    if time_limit:
        time_limit += game.get_episode_start_time()
        # The engine shows no picture after its own limit.
        game.set_episode_timeout(0)
    pressed = [
        button for button in game.get_available_buttons() if not vizdoom.is_delta_button(button)
    ]
    # A button that takes a number, such as degrees of a turn, has a plain one beside it.
    game.set_available_buttons(pressed)
    if settings.buttons_at_once > len(pressed):
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.vizdoom.buttons_at_once {settings.buttons_at_once}: {scenario} has "
            f"{len(pressed)} buttons: {', '.join(button.name for button in pressed)}",
        )
    try:
        start(game, vizdoom.exe_path)
    except vizdoom.ViZDoomErrorException as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT, f"{environment.id}: the engine does not start: {error}"
        ) from error
    return VizdoomEnv(
        game,
        vizdoom.exe_path,
        button_rows(len(pressed), settings.buttons_at_once),
        settings.height,
        settings.width,
        settings.action_repeat,
        time_limit,
    )


def button_rows(buttons: int, at_once: int) -> list[list[int]]:
    """Return the buttons of each action, [A, buttons] of 0 and 1: none, each one, each pair, ...

    Args:
        buttons: number of buttons.
        at_once: most buttons of an action.
    """
    return [
        [int(i in chosen) for i in range(buttons)]
        for size in range(at_once + 1)
        for chosen in combinations(range(buttons), size)
    ]
