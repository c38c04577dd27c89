"""No template repeats the experiment's schema: its defaults, or the names of its agents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbed.agents import AGENTS
from seedbed.config.keys import keys
from tests.support.chart import CHART

TEMPLATES = sorted(path for path in (CHART / "templates").rglob("*.*") if path.is_file())
COMMENT = re.compile(r"\{\{-? ?/\*.*?\*/ ?-?\}\}", re.DOTALL)
AGENT = re.compile(rf"(?<![-\w])({'|'.join(AGENTS)})\b")
# A path, or the last name of one, and the literal that takes the place of a missing value.
WITH_DEFAULT = (
    re.compile(r'\bdig((?: "\w+")+) ([^\s$()]+)'),
    re.compile(r'\bget [^\s()]+( "\w+") \| default ([^\s$()]+)'),
    re.compile(r"\.(\w+) \| default ([^\s$()]+)"),
)
NOTHING = ('""', "dict", "list")


def code_of(path: Path) -> str:
    return COMMENT.sub("", path.read_text())


def literal_defaults(text: str) -> Iterator[str]:
    """Yield the settings that a template gives a default of its own."""
    known = [f".{key.path}" for key in keys()]
    for pattern in WITH_DEFAULT:
        for words, literal in pattern.findall(text):
            path = ".".join(re.findall(r"\w+", words))
            if literal not in NOTHING and any(each.endswith(f".{path}") for each in known):
                yield f"{path}: {literal}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_default_and_no_agent_of_the_schema(path: Path) -> None:
    text = code_of(path)
    assert list(literal_defaults(text)) == [], 'read it by `include "seedbed.setting"`'
    assert AGENT.findall(text) == [], 'ask for a property by `include "seedbed.agent"`'


@pytest.mark.parametrize(
    "text",
    [
        '{{ dig "r2d2" "burn_in" 40 $experiment }}',
        '{{ dig "replay" "storage" "host" $learner }}',
        '{{ get $learner "batch_size" | default 32 }}',
        "{{ $stop.dollars | default 0 }}",
    ],
)
def test_a_literal_is_found(text: str) -> None:
    assert len(list(literal_defaults(text))) == 1


def test_settings_and_agents_of_the_chart_are_those_of_the_schema() -> None:
    schema = json.loads((CHART / "files" / "schema.json").read_text())
    assert list(schema["settings"]) == [key.path for key in keys()]
    assert schema["agents"]["r2d2"] == {"replay": True, "synchronous": False}
    assert schema["agents"]["a2c"] == {"replay": False, "synchronous": True}
