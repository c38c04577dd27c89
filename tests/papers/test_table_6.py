"""DeepMind Lab: the files are points of Table 6 of the SEED paper, with the agent of IMPALA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.baseline import write_experiment
from bench.plan import Plan
from seedbed.config import load_experiment
from seedbed.config.without_effect import settings_without_effect
from seedbed.factory import build_agent
from seedbed.spec import ArraySpec, EnvironmentSpec

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
    # The ResNet of IMPALA, in the first of Table 4's widths, and the LSTM after it.
    assert (learner.network, learner.network_options) == ("impala_deep", {"width": 1})
    assert learner.lstm_units == 256
    assert not settings_without_effect(experiment)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_widths_of_table_4_are_one_setting(width: int) -> None:
    experiment = load_experiment(FILES[0], [f"learner.network_options.width={width}"])
    assert experiment.learner.network_options == {"width": width}


@pytest.mark.slow_after(1)
@pytest.mark.backends
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_agent_has_the_memory_of_impala(file: Path) -> None:
    """Parameters by hand: torso, LSTM of 256 with previous action and reward, policy and value."""
    spec = EnvironmentSpec("lab:level", ArraySpec((72, 96, 3), "uint8"), 9, 4)
    agent: Any = build_agent(load_experiment(file), spec)

    def convolution(channels: int, filters: int) -> int:
        return (3 * 3 * channels + 1) * filters

    sections = [(3, 16), (16, 32), (32, 32)]
    torso = sum(convolution(*one) + 4 * convolution(one[1], one[1]) for one in sections)
    features = 9 * 12 * 32  # 72 x 96, halved three times
    lstm_inputs = 256 + 9 + 1  # features, one-hot previous action, previous reward
    lstm = (lstm_inputs + 256 + 1) * 4 * 256
    wanted = torso + (features + 1) * 256 + lstm + (256 + 1) * (9 + 1)
    assert agent.model.count_params() == wanted == 1_520_714
    assert agent.body.state_size == 2 * 256


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_baseline_is_measured_with_the_agent_of_the_files(width: int, tmp_path: Path) -> None:
    file = write_experiment(Plan(tmp_path, is_quick=True), "one", width, "actor", 4)
    measured, of_lab = load_experiment(file).learner, load_experiment(FILES[0]).learner
    assert (measured.network, measured.lstm_units) == (of_lab.network, of_lab.lstm_units)
    assert measured.network_options == {"width": width}
