"""A run that is at its end is found so from its summary, by the conditions of today's command."""

from __future__ import annotations

from typing import Any

import pytest

from seedbed.config import parse_experiment
from seedbed.runs.stop import end_of

SUMMARY: dict[str, Any] = {
    "env_frames": 3000,
    "updates": 30,
    "seconds": 20.0,
    "dollars": 0.01,
    "mean_return": 18.25,
    "mean_return_episodes": 100,
    "evaluation": {"updates": 30},
    "stop_reason": "stop.env_frames: 3000 of 3000",
}


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("env_frames: 3000", "stop.env_frames: 3000 of 3000"),
        ("env_frames: 3001", None),
        ("seconds: 1", "stop.seconds: 20 of 1"),
        ("env_frames: 4000, mean_return: 5", "stop.mean_return: 18.25 over 100 episodes, wanted 5"),
        ("mean_return: 19", None),
        # Its last 50 episodes are in the checkpoint, not in the summary.
        ("mean_return: 5, mean_return_episodes: 50", None),
    ],
)
def test_the_condition_is_that_of_todays_command(stop: str, text: str | None) -> None:
    experiment = parse_experiment(f"name: x\nenvironment: {{id: A-v0}}\nstop: {{{stop}}}")
    met = end_of(SUMMARY, experiment)
    assert (met and met.text) == text


def test_a_run_without_its_last_evaluation_is_not_at_its_end() -> None:
    experiment = parse_experiment("name: x\nenvironment: {id: A-v0}\nstop: {env_frames: 3000}")
    interrupted = SUMMARY | {"evaluation": {"updates": 20}}
    assert end_of(interrupted, experiment) is None
    assert end_of({"env_frames": 3000}, experiment) is None
    assert end_of(None, experiment) is None
