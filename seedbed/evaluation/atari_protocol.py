"""The protocol of the paper's Table 9, by which a policy for Atari is evaluated."""

from __future__ import annotations

from typing import Any

from seedbed.config import Experiment
from seedbed.config.schema import Environment

# What an evaluation may choose. The rest is as trained, since the policy depends on it.
TABLE_9 = {"noop_max": 30, "max_frames_per_episode": 108_000, "sticky_action_probability": 0.0}


def with_table_9(experiment: Experiment) -> tuple[Experiment, list[str]]:
    """The experiment with Table 9's no-ops, time limit and no sticky actions, and what changed."""
    if not experiment.environment.id.startswith("atari:"):
        return experiment, []
    atari = experiment.environment.atari
    changed = [
        f"environment.atari.{key} is {value}, though {getattr(atari, key)} in training"
        for key, value in TABLE_9.items()
        if getattr(atari, key) != value
    ]
    environment = experiment.environment.model_copy(
        update={"atari": atari.model_copy(update=TABLE_9)}
    )
    return experiment.model_copy(update={"environment": environment}), changed


# What the policy was trained with, and an evaluation cannot choose.
AS_TRAINED = {"frame_skip": 4, "height": 84, "width": 84, "full_action_space": True}


def departures(environment: Environment) -> list[str]:
    """Where a game is not played by the table, so that returns compare with published ones less."""
    atari = environment.atari
    return [
        f"environment.atari.{key} is {getattr(atari, key)}, and {value} in Table 9"
        for key, value in {**TABLE_9, **AS_TRAINED}.items()
        if getattr(atari, key) != value
    ]


def follows_table_9(environment: Environment) -> bool:
    """Whether returns may be set against published ones: an Atari game, played by the table.

    The game's own few actions do the same as the full set's 18, so they are let pass; `departures`
    names them.
    """
    return environment.id.startswith("atari:") and all(
        "full_action_space" in line for line in departures(environment)
    )


def protocol(environment: Environment) -> dict[str, Any]:
    """The settings of the environment that the returns depend on."""
    if environment.id.startswith("atari:"):
        return environment.atari.model_dump()
    return {"kwargs": environment.kwargs}
