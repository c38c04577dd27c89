"""The first hour's command keeps what it measured, and goes on with what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.accelerator.session import Case, Part, Session
from seedbed.runtime.exit_codes import ExitCode, SeedbedError


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
    assert "needs 10 s" in measured.results["missing"]["late/3"]
    again = session(minutes=2.0)
    second, third = (Case(name, takes(clock, 1), 5) for name in "23")
    again.measure([Part("long", 1, [first, second]), Part("late", 1, [third])])
    assert again.results["missing"] == {}
    assert again.results["parts"]["long"]["1"] == {"given": 15.0}, "not measured again"


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
