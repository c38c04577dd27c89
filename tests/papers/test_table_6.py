"""Table 6 of the SEED paper: the files of DeepMind Lab are points of its ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.config import load_experiment
from seedbed.config.without_effect import settings_without_effect

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = [EXPERIMENTS / "lab-vtrace.yaml", *sorted(EXPERIMENTS.glob("table1/lab-*.yaml"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_a_point_of_table_6(file: Path) -> None:
    experiment = load_experiment(file)
    environment, learner, vtrace = experiment.environment, experiment.learner, experiment.vtrace
    assert experiment.agent == "vtrace"
    assert environment.family == "lab"
    assert environment.lab.action_repeat == 4
    assert (environment.lab.height, environment.lab.width) == (72, 96)
    assert vtrace.discount in (0.99, 0.993, 0.997, 0.999)
    assert 1e-5 <= vtrace.entropy_cost <= 1e-3
    assert 1e-4 <= learner.optimizer.learning_rate <= 1e-3
    assert learner.optimizer.name == "adam"
    assert learner.optimizer.epsilon in (1e-1, 1e-3, 1e-5, 1e-7)
    assert learner.unroll_length == 32
    assert vtrace.baseline_cost == 0.5
    assert vtrace.trace_lambda in (0.9, 0.95, 0.99, 1.0)
    # The ResNet of IMPALA, in the first of Table 4's widths.
    assert (learner.network, learner.network_options) == ("impala_deep", {"width": 1})
    assert not settings_without_effect(experiment)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_widths_of_table_4_are_one_setting(width: int) -> None:
    experiment = load_experiment(FILES[0], [f"learner.network_options.width={width}"])
    assert experiment.learner.network_options == {"width": width}
