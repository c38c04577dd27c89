"""The protocol by which published Atari scores are measured: Table 9 of the SEED paper."""

from typing import Any

from seedbed.config import Experiment, parse_experiment
from seedbed.config.environment import Environment
from seedbed.config.load import dump_experiment

# What an evaluation may choose. The rest is as trained, because the policy depends on it.
# `exact` resizes bilinearly and plays 1 to `noop_max` no-ops.
PROTOCOL = {
    "preprocessing": "exact",
    "noop_max": 30,
    "max_frames_per_episode": 108_000,
    "sticky_action_probability": 0.0,
}
# Where `fast` departs from Table 9; evaluations use `exact`.
FAST = "it resizes by area, not bilinearly, and draws 0 to noop_max no-ops, not 1 to noop_max"
# What the policy was trained with.
PREPROCESSING = {"frame_skip": 4, "height": 84, "width": 84, "full_action_space": True}


def apply_atari_protocol(experiment: Experiment) -> tuple[Experiment, list[str]]:
    """Return the experiment with the protocol's settings, and a line for each change."""
    if not experiment.environment.id.startswith("atari:"):
        return experiment, []
    atari = experiment.environment.atari
    changed = {key: value for key, value in PROTOCOL.items() if getattr(atari, key) != value}
    overrides = [f"environment.atari.{key}={value}" for key, value in changed.items()]
    return parse_experiment(dump_experiment(experiment), overrides, "the Atari protocol"), [
        f"environment.atari.{key} is {value}, though {getattr(atari, key)} in training"
        for key, value in changed.items()
    ]


def deviations(environment: Environment) -> list[str]:
    """Return a line for each setting by which returns compare less with published ones."""
    if not environment.id.startswith("atari:"):
        return []
    atari = environment.atari
    lines = [
        f"environment.atari.{key} is {getattr(atari, key)}, and {value} in Table 9"
        for key, value in {**PROTOCOL, **PREPROCESSING}.items()
        if getattr(atari, key) != value
    ]
    if atari.preprocessing == "fast":
        lines[0] += f": {FAST}"
    return lines


def follows_atari_protocol(environment: Environment) -> bool:
    """Return whether returns compare with published ones: an Atari game, played by the protocol.

    The game's minimal action set is allowed, because its actions do the same as the full set's 18;
    `deviations` names it.
    """
    return environment.id.startswith("atari:") and all(
        "full_action_space" in line for line in deviations(environment)
    )


def protocol(environment: Environment) -> dict[str, Any]:
    """Return the settings of the environment that the returns depend on."""
    if environment.family:
        section: dict[str, Any] = getattr(environment, environment.family).model_dump()
        return section
    return {"kwargs": environment.kwargs}
