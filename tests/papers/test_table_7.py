"""Table 7 of the SEED paper: the files of Google Research Football are points of its ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.config import load_experiment
from seedbed.config.without_effect import settings_without_effect

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = [
    EXPERIMENTS / "football-11-vs-11.yaml",
    *sorted(EXPERIMENTS.glob("table1/football-*.yaml")),
]
MAPS = {"default": "96x72", "medium": "120x90", "large": "144x108", "11": "96x72"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_a_point_of_table_7(file: Path) -> None:
    experiment = load_experiment(file)
    environment, learner, vtrace = experiment.environment, experiment.learner, experiment.vtrace
    assert experiment.agent == "vtrace"
    assert environment.id == "football:11_vs_11_hard_stochastic"
    assert environment.family == "football"
    assert environment.football.smm == MAPS[file.stem.split("-")[1]]
    assert (learner.network, learner.frame_stack, learner.lstm_units) == ("football", 4, 0)
    assert (learner.unroll_length, learner.optimizer.name) == (32, "adam")
    assert 1e-5 <= learner.optimizer.learning_rate <= 1e-3
    assert vtrace.discount in (0.99, 0.993, 0.997, 0.999)
    assert 1e-7 <= vtrace.entropy_cost <= 1e-3
    assert vtrace.trace_lambda in (0.9, 0.95, 0.99, 1.0)
    assert vtrace.baseline_cost == 0.5
    assert not settings_without_effect(experiment)
