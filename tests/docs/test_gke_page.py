"""The page on GKE is short, each line of it runs or is on a list, and its prices are ours."""

from __future__ import annotations

import re
import shlex

import pytest

from seedbed.cli.main import main
from tests.support.gke_page import MOST_LINES, NOT_RUN, PAGE, REPLACED, is_run, lines


def test_the_page_has_one_screen_or_two() -> None:
    assert len(PAGE.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("line", lines())
def test_a_line_runs_or_is_on_the_list(line: str) -> None:
    assert is_run(line) or line.split()[0] in NOT_RUN


def test_a_line_of_another_program_is_an_error() -> None:
    with pytest.raises(AssertionError, match="neither run nor on the list: terraform apply"):
        is_run("terraform apply")


def test_the_lists_have_nothing_needless() -> None:
    assert {line.split()[0] for line in lines()} >= set(NOT_RUN)
    assert all(any(words in line for line in lines()) for words in REPLACED)


@pytest.mark.slow
def test_prices_are_those_of_the_dry_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for line in lines():
        if "--dry-run" in line:
            assert main(shlex.split(line)[1:]) == 0
    printed = set(re.findall(r"\$[\d.]*\d", capsys.readouterr().err))
    named = set(re.findall(r"\$[\d.]*\d", PAGE.read_text()))
    assert named
    assert named <= printed
