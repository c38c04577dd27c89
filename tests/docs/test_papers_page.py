"""docs/papers.md names what the papers have, where they have it, and commands that are there."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from typing import NamedTuple

import pytest
import yaml

from seedbed.cli.main import COMMANDS
from seedbed.config import load_experiment
from seedbed.config.keys import keys
from tests.support.source_imports import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text()
SEED, GALA, IN_GPU = "SEED RL", "GALA", "Deep In-GPU"
# Sections that the rows may name, and the section of each table and figure.
SECTIONS = {
    SEED: "3 3.1 3.2 4.1 4.1.1 4.1.2 4.2 4.2.1 4.2.2 4.3 4.4 4.4.1 4.4.2 A.1.1 A.1.2 A.2.1 A.3.1 "
    "A.3.2 A.4 A.5 A.6 A.7",
    GALA: "2 3 5",
    IN_GPU: "3 4 4.1 4.2 5 6",
}
PLACES = {
    SEED: {
        "3": "Figure 1, Figure 2, Figure 3",
        "4.1.1": "Figure 4",
        "4.1.2": "Table 1, Figure 5",
        "4.2.2": "Table 2",
        "4.3": "Figure 6",
        "4.4": "Table 3",
        "4.4.1": "Table 4",
        "4.4.2": "Table 5",
        "A.1.2": "Table 6",
        "A.2.1": "Table 7",
        "A.3.1": "Table 8, Table 9",
        "A.3.2": "Table 10, Figure 7",
        "A.5": "Table 11",
        "A.6": "Table 12",
        "A.7": "Table 13",
    },
    GALA: {
        "5": "Table 1, Figure 1a, Figure 1b, Figure 1c, Figure 1d, Figure 1e, Figure 1f, "
        "Figure 1g, Figure 2a, Figure 2b, Figure 3a, Figure 3b",
    },
    IN_GPU: {"5": "Table 1, Figure 3, Figure 4"},
}
# GALA's captions: words of the item that draws each.
CAPTIONS = {
    "Figure 1a": ["successful runs of 10", "simulators"],
    "Figure 1b": ["by frames", "best 3", "95 % intervals"],
    "Figure 1c": ["by frames", "mean of 10", "95 % intervals"],
    "Figure 1d": ["by time", "best 3"],
    "Figure 1e": ["by time", "mean of 10"],
    "Figure 1f": ["score by energy", "best 3"],
    "Figure 1g": ["score by energy", "mean of 10"],
    "Figure 2a": ["distance to consensus", "Proposition 1"],
    "Figure 2b": ["similarity", "gradients"],
    "Figure 3a": ["utilisation", "power"],
    "Figure 3b": ["utilisation", "kilojoule", "simulators"],
}


class Row(NamedTuple):
    paper: str
    item: str
    place: str
    state: str
    shown_by: str


def _rows() -> list[Row]:
    rows = []
    for part in PAGE.split("\n## ")[1:]:
        paper = next((name for name in (SEED, GALA, IN_GPU) if part.startswith(name)), "")
        for line in part.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("| ") and cells[0] != "item":
                rows.append(Row(paper, *cells))
    return rows


ROWS = [pytest.param(row, id=row.item[:40]) for row in _rows()]
NUMBER = r"\d+[a-g]?\b"
CODES = [(row.item, code) for row in _rows() for code in re.findall("`([^`]+)`", row.shown_by)]


def numbered(text: str) -> list[str]:
    """The tables and figures that a text names, also those of `Figures 1b, 1c`."""
    found = re.finditer(f"(Table|Figure)s? ({NUMBER}(?:, {NUMBER})*)", text)
    return [f"{one[1]} {number}" for one in found for number in one[2].split(", ")]


@pytest.mark.parametrize("row", ROWS)
def test_a_place_is_where_the_paper_has_it(row: Row) -> None:
    sections = re.sub(f"(Table|Figure)s? {NUMBER}(, {NUMBER})*", "", row.place)
    named = set(re.findall(r"\b[A\d](?:\.\d)+|(?<=section )\d|(?<=sections )\d", sections))
    assert named <= set(SECTIONS[row.paper].split())
    for one in numbered(f"{row.item} {row.place}"):
        (section,) = (at for at, has in PLACES[row.paper].items() if one in has.split(", "))
        assert section in named, f"{one} is in {section}"


@pytest.mark.parametrize("row", ROWS)
def test_a_state_is_one_of_three(row: Row) -> None:
    assert re.match(r"(done|partly|no)\b", row.state), row.state


def test_every_figure_of_gala_is_the_item_that_its_caption_says() -> None:
    found = {one: row for row in _rows() if row.paper == GALA for one in numbered(row.place)}
    assert set(found) == {*CAPTIONS, "Table 1"}
    for figure, words in CAPTIONS.items():
        missing = [word for word in words if word not in found[figure].item]
        assert not missing, f"{figure}: {missing}"


def test_what_a_plot_and_a_run_lack_of_galas_figures_is_said() -> None:
    """No run of the six games is kept, no curve is drawn over energy, and no GPU is sampled."""
    state = {one: row.state for row in _rows() if row.paper == GALA for one in numbered(row.place)}
    for figure in ("Figure 1b", "Figure 1c", "Figure 1d", "Figure 1e", "Figure 3b"):
        assert state[figure].startswith("partly"), figure
    for figure in ("Figure 1f", "Figure 1g", "Figure 3a"):
        assert state[figure].startswith("no:"), figure


def test_the_departure_of_galas_network_is_said() -> None:
    networks = {load_experiment(ROOT / "experiments/atari-gala.yaml").learner.network}
    (row,) = [row for row in _rows() if row.paper == GALA and "network" in row.item]
    assert networks == {"nature_shallow"}
    assert "footnote" in row.item
    for name in ("`nature_shallow`", "`impala_shallow`"):
        assert name in row.state


def test_what_a_command_needs_installed_is_said() -> None:
    """`check env football:...` is refused after `make setup` alone."""
    for row in _rows():
        if "check env football:" in row.shown_by:
            assert row.shown_by.startswith("after `make football`"), row
        if "check env lab:" in row.shown_by:
            assert "it has no wheel" in row.state, row


@pytest.mark.parametrize(("item", "code"), CODES)
def test_a_command_parses_and_a_setting_is_there(
    item: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(code.replace("...", ""))
    names = {key.path for key in keys()}
    chart = yaml.safe_load((ROOT / "helm/seedbed/values.yaml").read_text())
    if words[0] == "seedbed" and len(words) > 1:
        assert words[1] in COMMANDS
        name = "bench.main" if words[1] == "bench" else f"seedbed.cli.{words[1]}"
        parser = argparse.ArgumentParser()
        importlib.import_module(name).add_arguments(parser)
        try:
            parser.parse_args(words[2:])
        except SystemExit:
            if words[2:]:  # a command alone names itself
                pytest.fail(f"{item}: {code}: {capsys.readouterr().err[-300:]}")
        settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        for setting in settings:
            assert setting.partition("=")[0] in names, setting
    elif re.match(r"(actor|cost|environment|gossip|learner|r2d2|vtrace)\.[a-z_.]+\b(?!/)", code):
        name = re.split("[:=]", code)[0].strip()
        section, _, key = name.partition(".")
        assert name in names or key in chart[section], code
