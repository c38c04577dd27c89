"""Sections of the first-person environments: DeepMind Lab and ViZDoom."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from seedbed.settings import Positive, Section, fixed

# DeepMind Lab's own settings that have a name of ours.
_OURS = ("width", "height")


class Picture(Section):
    """What the first-person environments share. The defaults are those of IMPALA and SEED."""

    height: Positive = fixed(72, "it sets the network's input shape")
    """Height of a picture, in pixels."""
    width: Positive = fixed(96, "it sets the network's input shape")
    """Width of a picture, in pixels."""
    action_repeat: Positive = fixed(4, "steps, frames and the discount's meaning follow from it")
    """Action repetition: frames a step."""


class Lab(Picture):
    """Settings of `lab:` environments, DeepMind Lab."""

    renderer: Literal["software", "hardware"] = "software"
    """Drawing of pictures: `software` is OSMesa, on the CPU; `hardware` is EGL or GLX, as Lab was
    built.
    """
    level_cache: str = ""
    """Folder of compiled maps, which exists, and which any number of actors share; without one,
    each episode of a level with random maps compiles a map, which takes seconds.
    """
    episode_seeds: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Number of different seeds of episodes. A map is found in the cache only when the seed comes
    again. 0 takes all 2^31.
    """
    config: dict[str, str] = Field(default_factory=dict)
    """More settings of Lab and of the level, all of them text, such as `{fps: "60"}` or
    `{allowHoldOutLevels: "true"}`.
    """

    @field_validator("config")
    @classmethod
    def _names_of_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in _OURS:
            if name in value:
                raise ValueError(f"{name} is a setting of its own: environment.lab.{name}")
        return value


class Vizdoom(Picture):
    """Settings of `vizdoom:` environments."""

    buttons_at_once: Positive = fixed(1, "it sets the number of actions and what each one does")
    """Most buttons that an action presses. With 1, the actions are: nothing, and each button of the
    scenario; with 2, each pair of buttons too.
    """
