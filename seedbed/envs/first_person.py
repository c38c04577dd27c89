"""What DeepMind Lab and ViZDoom share as Gymnasium environments: pictures in colour."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from typing_extensions import override

# Different seeds of episodes, as both simulators take them.
SEEDS = 2**31


class FirstPersonEnv(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """An environment that shows pictures [height, width, 3] uint8 and takes one of A actions.

    Subclasses keep the newest picture in `_picture`.

    Args:
        height: of a picture.
        width: of a picture.
        actions: A.
        action_repeat: frames a step.
        frames_per_second: speed of the simulator's clock.
    """

    render_mode = "rgb_array"

    def __init__(
        self, height: int, width: int, actions: int, action_repeat: int, frames_per_second: int
    ) -> None:
        self.action_repeat = action_repeat
        self.observation_space = Box(0, 255, (height, width, 3), np.uint8)
        self.action_space = Discrete(actions)
        render_fps = frames_per_second / action_repeat
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": render_fps}
        self._picture: NDArray[np.uint8]

    @override
    def render(self) -> NDArray[np.uint8]:
        return self._picture
