"""`seedbed config`: what it prints is what the schema says, and the docs are up to date."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
import yaml

from seedbed.cli import config
from seedbed.config import Experiment, parse_experiment
from seedbed.config.keys import keys
from seedbed.config.reference import reference
from seedbed.runtime.exit_codes import SeedbedError
from tests.support.source_imports import product_sources

ROOT = Path(__file__).parents[2]

# Files that name keys without acting on them.
NOT_READERS = (
    "seedbed/config/schema.py",
    "seedbed/cli/check_machine.py",
)

# What a key is called where it is read, if not by its own name.
READ_AS_A_WHOLE = {
    "environment.kwargs": r"\*\*\w*\.?kwargs|environment\.kwargs",
}


def call(*words: str) -> None:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    config.run(parser.parse_args(words))


def test_show_prints_every_key_and_is_an_experiment_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pong.yaml"
    file.write_text("name: pong\nenvironment: {id: 'atari:Pong'}\nseed: 3\n")
    call("show", str(file), "--set", "learner.lstm_units=256", "--set", "seed=4")
    text = capsys.readouterr().out
    shown = parse_experiment(text)
    assert (shown.learner.lstm_units, shown.seed) == (256, 4)
    tree = yaml.safe_load(text)
    for key in keys():
        node = tree
        for part in key.path.split("."):
            node = node[part]
    with pytest.raises(SeedbedError, match=r"lstm_unit=256: unknown key"):
        call("show", str(file), "--set", "learner.lstm_unit=256")


def test_schema_is_json_schema_that_refuses_unknown_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call("schema")
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    objects = [schema, *schema["$defs"].values()]
    assert all(part["additionalProperties"] is False for part in objects)
    assert "1..noop_max" in json.dumps(schema) or "noop_max" in json.dumps(schema)


def test_the_reference_in_docs_is_what_the_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    call("reference")
    assert (ROOT / "docs" / "configuration.md").read_text() == capsys.readouterr().out, (
        "run: seedbed config reference > docs/configuration.md"
    )


def test_the_reference_has_type_default_range_and_words_for_each_key() -> None:
    text = reference()
    rows = {
        line.split("|")[1].strip().strip("`"): line
        for line in text.splitlines()
        if line.startswith("| `")
    }
    assert list(rows) == [key.path for key in keys()]
    assert [key.path for key in keys() if not key.description] == []
    assert "**required**" in rows["name"]
    assert "| integer | `1` | ≥ 0, < 2147483648 | **identity** |" in rows["seed"]
    assert '`"adam"` or `"rmsprop"`' in rows["learner.optimizer.name"]
    assert "number or null | `null`" in rows["stop.mean_return"]
    for cell, name in (("**identity**", "identity"), ("*result*", "result"), ("free", "free")):
        assert {path for path, row in rows.items() if f"| {cell} |" in row} == {
            key.path for key in keys() if key.key_class.name == name
        }


def test_every_key_is_read_somewhere() -> None:
    """Settings that nobody reads are a known disease. This finds names, not uses: a floor."""
    texts = [
        file.read_text()
        for file in product_sources()
        if file.relative_to(ROOT).as_posix() not in NOT_READERS
    ]
    code = "\n".join(texts)
    unread = [key.path for key in keys() if not is_read(key.path, code)]
    assert unread == [], "these settings have no effect"


def is_read(path: str, code: str) -> bool:
    leaf = path.rsplit(".", 1)[-1]
    return re.search(READ_AS_A_WHOLE.get(path, rf"\.{leaf}\b"), code) is not None


def test_the_search_for_readers_can_fail() -> None:
    assert is_read("learner.lstm_units", "x = learner.lstm_units + 1")
    assert not is_read("learner.lstm_units", "x = learner.lstm_units_of + lstm_units")


def test_each_description_stands_alone() -> None:
    """A reader sees one setting at a time: in an editor, or in the chart's schema."""
    words = re.compile(r"\b(who|whoever|nobody|somebody|everybody|its|those|likewise|their)\b")
    wrong = [
        f"{key.path}: {key.description}"
        for key in keys()
        if not key.description[:1].isupper() or words.search(key.description)
    ]
    assert wrong == []


def test_every_section_documents_itself() -> None:
    for key in keys():
        model = Experiment
        for part in key.path.split(".")[:-1]:
            model = model.model_fields[part].annotation  # type: ignore[assignment]
        assert model.__doc__
        assert not model.__doc__.startswith("\n")
