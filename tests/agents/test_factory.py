"""From an experiment to its agent and optimizer."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field

from seedbed.agents import AGENTS
from seedbed.agents.vtrace.agent import VtraceAgent
from seedbed.config.load import parse_experiment
from seedbed.config.schema import Experiment
from seedbed.factory import build_agent
from seedbed.networks import NETWORKS
from seedbed.networks.registry import load_class
from seedbed.packed import ACTION_MASK, Entry, PackedSpec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ActionSpec, ArraySpec, EnvironmentSpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

SPEC = EnvironmentSpec("x", ArraySpec((4,), "float32"), 3, 2)


class OwnOptions(BaseModel):
    """The hyperparameters of a user's agent."""

    model_config = ConfigDict(extra="forbid")
    temperature: float = Field(1.0, gt=0)


class PlainAgent:
    """An agent without a base class, which has what it needs and nothing else."""

    Options = OwnOptions
    synchronous = True

    def __init__(self, options: Any, body: Any, actions: int) -> None:
        self.options, self.body = options, body


class PlainReplayAgent(PlainAgent):
    """The same with replay."""

    burn_in = 3

    def initial_priority(self, window: Any) -> Any:
        raise NotImplementedError


class OwnAgent(VtraceAgent):
    """A user's agent."""

    Options = OwnOptions


MASKED = PackedSpec.of(
    [Entry("x", ArraySpec((4,), "float32")), Entry(ACTION_MASK, ArraySpec((3,), "uint8"))]
)


LEARNERS = {
    "dqn": "{network: mlp, frame_stack: 1, unroll_length: 1}",
    "r2d2": "{network: mlp, frame_stack: 1, lstm_units: 8}",
}


@pytest.mark.parametrize("agent", LEARNERS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation": MASKED}, "do not read action_mask.*vtrace, ppo or a2c"),
        ({"space": ActionSpec("continuous", (3,))}, "3 continuous actions.*vtrace, ppo or a2c"),
        ({"space": ActionSpec("multi_discrete", (2, 1))}, "2 x 1 actions.*vtrace, ppo or a2c"),
    ],
)
def test_action_values_are_of_one_discrete_action_without_masks(
    agent: str, change: dict[str, Any], words: str
) -> None:
    asked = experiment(f"agent: {agent}\nlearner: {LEARNERS[agent]}\n")
    with pytest.raises(SeedbedError, match=words) as error:
        build_agent(asked, replace(SPEC, **change))
    assert error.value.code is ExitCode.CONFIG


def experiment(text: str = "") -> Experiment:
    base = "name: a\nenvironment: {id: x}\n"
    return parse_experiment(base + (text or "learner: {network: mlp}"))


def weights(agent: Any) -> list[Any]:
    return [v.numpy() for v in agent.model.trainable_variables]


def test_the_schema_knows_the_networks_and_agents_by_name() -> None:
    """It refuses others before anything starts, without importing Keras."""
    for key, names in (("learner.network", NETWORKS), ("agent", AGENTS)):
        for name in names:
            needed = {
                "a2c": ["learner.batch_size=64"],
                "dqn": ["learner.unroll_length=1"],
                "r2d2": ["learner.lstm_units=8"],
            }
            settings = [f"{key}={name}", *needed.get(name, [])]
            parse_experiment("name: a\nenvironment: {id: x}", settings)
    for path in (*NETWORKS.values(), *AGENTS.values()):
        assert inspect.isclass(load_class(path, "name"))


def test_orthogonal_weights() -> None:
    """Saxe et al. 2013: rows or columns that are orthogonal, of the same length."""
    text = "learner: {network: impala_shallow, lstm_units: 24, initial_weights: orthogonal}"
    spec = replace(SPEC, observation=ArraySpec((36, 36), "uint8"))
    agent = build_agent(experiment(text), spec)
    lengths = {"policy": 0.01, "value": 1.0, "lstm": 1.0}
    kernels = [v for v in agent.model.trainable_variables if v.path.endswith("kernel")]
    assert len(kernels) == 7
    for kernel in kernels:
        flat = kernel.numpy().reshape(-1, kernel.shape[-1])
        small = flat if flat.shape[0] <= flat.shape[1] else flat.T
        length = lengths.get(kernel.path.split("/")[-2], np.sqrt(2.0))
        wanted = length**2 * np.eye(len(small))
        np.testing.assert_allclose(small @ small.T, wanted, atol=1e-5, err_msg=kernel.path)


def test_the_seed_decides_the_weights() -> None:
    text = "seed: {0}\nlearner: {{network: mlp}}\nagent: vtrace"
    one, same, other = (weights(build_agent(experiment(text.format(n)), SPEC)) for n in (1, 1, 2))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    # Glorot & Bengio 2010, but for the policy's head, which is nearly uniform at first.
    for kernel in (w for w in one if w.ndim == 2 and w.shape[1] != SPEC.actions):
        limit = np.sqrt(6 / sum(kernel.shape))
        assert 0.5 * limit < np.abs(kernel).max() <= limit


def test_glorot_is_every_weight_of_the_paper() -> None:
    """The LSTM's recurrent kernel and the policy's head too, which the default draws otherwise."""
    for text, within in (("glorot", True), ("default", False)):
        settings = f"agent: vtrace\nlearner: {{lstm_units: 24, initial_weights: {text}}}"
        for variable in build_agent(experiment(settings), SPEC).model.trainable_variables:
            kernel = variable.numpy()
            if kernel.ndim != 2:
                continue
            limit = np.sqrt(6 / sum(kernel.shape))
            largest = np.abs(kernel).max()
            is_drawn_otherwise = "recurrent" in variable.path or "policy" in variable.path
            expected = within or not is_drawn_otherwise
            assert (0.5 * limit < largest <= limit) == expected, variable.path


def test_vtrace_is_built_with_its_options() -> None:
    agent: Any = build_agent(
        experiment("agent: vtrace\nlearner: {lstm_units: 6}\nvtrace: {discount: 0.5}"), SPEC
    )
    assert agent.options.discount == 0.5
    assert agent.body.state_size == 12
    assert agent.behaviour["logits"].shape == (3,)


def test_an_agent_of_the_users() -> None:
    text = "learner: {{network: mlp}}\nagent: {0}:OwnAgent\nagent_options: {{temperature: {1}}}"
    agent: Any = build_agent(experiment(text.format(__name__, 2)), SPEC)
    assert agent.options.temperature == 2


def test_an_agent_without_a_base_has_the_defaults() -> None:
    text = f"learner: {{network: mlp}}\nagent: {__name__}:"
    plain: Any = build_agent(experiment(text + "PlainAgent"), SPEC)
    assert isinstance(plain, PlainAgent)
    assert (plain.trains_from_replay, plain.synchronous, plain.evaluates) == (False, True, "sample")
    assert plain.target_update_period == 0
    replay: Any = build_agent(experiment(text + "PlainReplayAgent"), SPEC)
    assert (replay.trains_from_replay, replay.burn_in, replay.lookahead) == (True, 3, 0)


@pytest.mark.parametrize(
    ("agent", "options", "says"),
    [
        ("nowhere:Agent", "{}", r"agent 'nowhere:Agent' cannot be loaded"),
        (f"{__name__}:Absent", "{}", r"Absent"),
        (f"{__name__}:OwnAgent", "{temperature: 0}", r"agent_options.temperature: .*greater"),
        (f"{__name__}:OwnAgent", "{heat: 1}", r"agent_options.heat"),
        (f"{__name__}:SPEC", "{}", r"agent .*SPEC.* has no Options"),
    ],
)
def test_agents_that_are_refused(agent: str, options: str, says: str) -> None:
    text = f"learner: {{network: mlp}}\nagent: {agent}\nagent_options: {options}"
    with pytest.raises(SeedbedError, match=says) as error:
        build_agent(experiment(text), SPEC)
    assert error.value.code is ExitCode.CONFIG
