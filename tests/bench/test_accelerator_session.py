"""The first hour's command keeps what it measured, and goes on with what is missing."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.accelerator.session import Case, Part, Session
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from tests.support.source_imports import ROOT


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def session(tmp_path: Path, clock: Clock) -> Callable[..., Session]:
    def made(minutes: float = 1.0, **settings: Any) -> Session:
        given = {"backend": "jax", **settings}
        return Session(tmp_path / "out.json", {"minutes": minutes, **given}, list(given), clock)

    return made


def takes(clock: Clock, seconds: float) -> Callable[[float], dict[str, Any]]:
    def measure(given: float) -> dict[str, Any]:
        clock.now += seconds
        return {"given": given}

    return measure


def never(_: float) -> dict[str, Any]:
    raise AssertionError("measured twice")


def interrupted(_: float) -> dict[str, Any]:
    raise KeyboardInterrupt


def test_a_case_is_in_the_file_before_the_next_one_begins(
    session: Callable[..., Session], clock: Clock, tmp_path: Path
) -> None:
    def second(_: float) -> dict[str, Any]:
        written = json.loads((tmp_path / "out.json").read_text())
        assert written["parts"] == {"a": {"1": {"given": 30.0}}}
        return {"number": 2}

    session().measure([Part("a", 1, [Case("1", takes(clock, 5), 1), Case("2", second, 1)])])
    assert json.loads((tmp_path / "out.json").read_text())["parts"]["a"]["2"] == {"number": 2}


def test_the_same_command_goes_on_where_it_was_cut_off(
    session: Callable[..., Session], clock: Clock
) -> None:
    with pytest.raises(KeyboardInterrupt):
        session().measure([Part("a", 1, [Case("1", takes(clock, 20), 1), Case("2", interrupted)])])
    again = session()
    assert again.results["spent_s"] == 20
    again.measure([Part("a", 1, [Case("1", never, 1), Case("2", takes(clock, 1), 1)])])
    assert again.results["parts"]["a"]["2"] == {"given": 40.0}, "of 60 seconds, 20 were spent"


def test_what_does_not_fit_is_missing_with_the_reason(
    session: Callable[..., Session], clock: Clock
) -> None:
    measured = session()
    first = Case("1", takes(clock, 59), 1)
    measured.measure(
        [Part("long", 1, [first, Case("2", never, 5)]), Part("late", 1, [Case("3", never, 10)])]
    )
    assert set(measured.results["missing"]) == {"long/2", "late/3"}
    assert "at least 10 s" in measured.results["missing"]["late/3"]
    again = session(minutes=2.0)
    second, third = (Case(name, takes(clock, 1), 5) for name in "23")
    again.measure([Part("long", 1, [first, second]), Part("late", 1, [third])])
    assert again.results["missing"] == {}
    assert again.results["parts"]["long"]["1"] == {"given": 15.0}, "not measured again"


def test_cases_are_in_the_order_of_the_part(session: Callable[..., Session], clock: Clock) -> None:
    second = Case("2", takes(clock, 1), 1)
    session().measure([Part("a", 1, [second])])
    again = session()
    again.measure([Part("a", 1, [Case("1", takes(clock, 1), 1), second])])
    assert list(again.results["parts"]["a"]) == ["1", "2"]


def test_parts_share_what_is_left(session: Callable[..., Session], clock: Clock) -> None:
    measured = session()
    parts = [
        Part("short", 1, [Case("1", takes(clock, 6), 1)]),
        Part("two", 1, [Case("1", takes(clock, 1), 1), Case("2", takes(clock, 1), 1)]),
        Part("last", 1, [Case("1", takes(clock, 1), 1)]),
    ]
    measured.measure(parts)
    given = {
        f"{part}/{name}": case["given"]
        for part, cases in measured.results["parts"].items()
        for name, case in cases.items()
    }
    # 60 of three shares; then 54 of two; the rest for the last.
    assert given == {"short/1": 20.0, "two/1": 13.5, "two/2": 26.0, "last/1": 52.0}


def test_a_case_that_fails_loses_no_other(session: Callable[..., Session], clock: Clock) -> None:
    def fails(_: float) -> dict[str, Any]:
        raise SeedbedError(ExitCode.THREAD_FAILED, "out of memory")

    measured = session()
    with pytest.raises(SeedbedError, match="a/1"):
        measured.measure([Part("a", 1, [Case("1", fails, 1), Case("2", takes(clock, 1), 1)])])
    assert measured.results["missing"] == {"a/1": "out of memory"}
    assert "2" in measured.results["parts"]["a"]


def test_a_file_of_other_settings_is_refused(session: Callable[..., Session], clock: Clock) -> None:
    session().measure([Part("a", 1, [Case("1", takes(clock, 1), 1)])])
    with pytest.raises(SeedbedError, match="backend") as caught:
        session(backend="tensorflow")
    assert caught.value.code == ExitCode.USAGE


def slices(tmp_path: Path, body: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the script of slices with a stand-in for Python, which has the JSON's path as $FILE."""
    file, python = tmp_path / "out.json", tmp_path / "python"
    python.write_text(f"#!/bin/sh\nFILE={file}\n{body}\n")
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python), "SLICE_S": "0.5", **settings}
    command = [str(ROOT / "tools" / "accelerator_session.sh"), str(file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


# 124 is what `timeout` ends with, as if the slice had been cut off.
MEASURES_AND_IS_CUT_OFF = """
[ -f $FILE.2 ] && exit 0
[ -f $FILE ] && touch $FILE.2
echo "{\\"cases\\": $(date +%N)}" > $FILE
exit 124
"""


def test_slices_go_on_until_the_command_ends_by_itself(tmp_path: Path) -> None:
    answer = slices(tmp_path, MEASURES_AND_IS_CUT_OFF)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("is over") == 2


def test_one_slice_says_that_there_is_more(tmp_path: Path) -> None:
    assert slices(tmp_path, MEASURES_AND_IS_CUT_OFF, SLICES="1").returncode == 75


def test_a_slice_without_a_result_ends_the_slices(tmp_path: Path) -> None:
    answer = slices(tmp_path, 'echo "{\\"spent_s\\": $(date +%N)}" > $FILE; exec sleep 30')
    assert answer.returncode == 1
    # The first slice made the file; the second one changed nothing but the time.
    assert "measured nothing" in answer.stderr
    assert slices(tmp_path, "exit 7").returncode == 7
