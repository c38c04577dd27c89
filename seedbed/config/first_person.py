"""Sections of the first-person environments: DeepMind Lab and ViZDoom."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from seedbed.settings import ACTIONS, FREE, INPUT, REPEAT, RESULT, KeyClass, Positive, Section

# DeepMind Lab's own settings that have a name of ours.
_OURS = ("width", "height")


class Picture(Section):
    """What the first-person environments share. The defaults are those of IMPALA and SEED."""

    key_class: ClassVar[KeyClass] = RESULT

    height: Annotated[Positive, INPUT] = 72
    """Height of a picture, in pixels."""
    width: Annotated[Positive, INPUT] = 96
    """Width of a picture, in pixels."""
    action_repeat: Annotated[Positive, REPEAT] = 4
    """Action repetition: frames a step."""


class Lab(Picture):
    """Settings of `lab:` environments, DeepMind Lab."""

    renderer: Annotated[Literal["software", "hardware"], FREE] = "software"
    """Drawing of pictures: `software` is OSMesa, on the CPU; `hardware` is EGL or GLX, as Lab was
    built.
    """
    level_cache: Annotated[str, FREE] = ""
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

    buttons_at_once: Annotated[Positive, ACTIONS] = 1
    """Most buttons that an action presses. With 1, the actions are: nothing, and each button of the
    scenario; with 2, each pair of buttons too.
    """
