"""Free settings arrive as they were written, everywhere, or are refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from seedbed.config import parse_experiment
from seedbed.config.environment import Environment
from seedbed.config.load import dump_experiment
from seedbed.config.yaml_text import dump_yaml, load_yaml
from seedbed.runtime.exit_codes import SeedbedError

HEAD = "name: free\nenvironment: {id: a.b:make, kwargs: "
# What YAML 1.1 reads as something else than is written.
WORDS = {
    "010": 10,
    "0o17": 15,
    "0x1f": 31,
    "1_000": 1000,
    "1e-4": 1e-4,
    "1e5": 1e5,
    "+.5": 0.5,
    "1:30": "1:30",
    "yes": "yes",
    "no": "no",
    "on": "on",
    "y": "y",
    "2024-05-01": "2024-05-01",
    "true": True,
    "~": None,
    "null": None,
    "'010'": "010",
    "=": "=",
}


def kwargs_of(text: str) -> dict[str, Any]:
    return parse_experiment(f"{HEAD}{text}}}").environment.kwargs


@pytest.mark.parametrize("text", WORDS)
def test_a_word_is_what_it_says_and_stays_so(text: str) -> None:
    experiment = parse_experiment(f"{HEAD}{{value: {text}}}}}")
    given = experiment.environment.kwargs["value"]
    assert (given, type(given)) == (WORDS[text], type(WORDS[text]))
    # Through the run directory, and to the probe, the workers and the actors.
    again = parse_experiment(dump_experiment(experiment)).environment
    other = Environment.model_validate_json(experiment.environment.model_dump_json())
    for environment in (again, other):
        assert repr(environment.kwargs) == repr(experiment.environment.kwargs)


@pytest.mark.parametrize("text", [*WORDS, "0b1", "012e1", "<<", "-", "a: b", "", ".inf", "1."])
def test_a_text_is_quoted_where_any_reader_would_take_it_for_something_else(text: str) -> None:
    assert load_yaml(dump_yaml({"a": text})) == {"a": text}
    assert yaml.safe_load(dump_yaml({"a": text})) == {"a": text}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{limit: .inf}", "limit: inf"),
        ("{limit: .nan}", "limit: nan"),
        ("{rates: {1: 0.5}}", "rates: the key 1 is no text"),
        ("{a: [{b: {true: 1}}]}", r"a\[0\].b: the key True is no text"),
        ("{when: !!timestamp 2024-05-01}", "when: .* is a date"),
        ("{data: !!binary aGk=}", "data: .* is a bytes"),
        ("{all: !!set {a, b}}", "all: .* is a set"),
    ],
)
def test_what_no_file_keeps_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(SeedbedError, match=f"environment.kwargs: {words}"):
        kwargs_of(text)


@pytest.mark.parametrize("section", ["agent_options", "learner.network_options"])
def test_so_it_is_in_every_free_section(section: str) -> None:
    given = ["agent=a.b:C", f"{section}={{limit: .inf}}"]
    with pytest.raises(SeedbedError, match=f"{section}.*limit: inf"):
        parse_experiment("name: free\nenvironment: {id: CartPole-v1}", given)


def test_numbers_keep_all_their_digits() -> None:
    numbers = [0.1, 1e-320, 2**63, -0.0, 1.7976931348623157e308, math.pi]
    experiment = parse_experiment(f"{HEAD}{{numbers: {numbers}}}}}")
    again = parse_experiment(dump_experiment(experiment))
    assert repr(again.environment.kwargs["numbers"]) == repr(numbers)
