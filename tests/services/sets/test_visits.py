"""What the controller of a set keeps of the learners that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.services.sets.rows import Visits

_END = {"over": "stop.env_frames: 6012 of 6000", "process": {"pid": 7, "start_ticks": 1}}


class Scripted:
    """A learner with one status and one answer after the other."""

    def __init__(self, *answers: tuple[dict[str, Any], bool] | OSError) -> None:
        self._answers = list(answers)
        self._whole = False

    def status(self) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        status, self._whole = answer
        return dict(status)

    def copy(self, folder: Path) -> bool:
        folder.mkdir(parents=True, exist_ok=True)
        return self._whole


def test_a_bill_that_comes_after_the_last_read_takes_nothing_back(tmp_path: Path) -> None:
    """A learner that ends writes its last dollars, and goes before they are read."""
    later = {**_END, "process": {"pid": 7, "start_ticks": 2}}
    learner = Scripted((_END, False), (_END, True), (_END, False), (later, False))
    visits = Visits(tmp_path, lambda _url: learner)
    read = []
    for _ in range(4):
        visits.visit({"a": ["http://a:9090"]})
        status = json.loads((tmp_path / "runs/a/status.json").read_text())
        read.append(status["rows_read"])
    assert read == [False, True, True, False], "and a learner that has resumed has other rows"


def test_why_a_learner_is_not_read_is_logged_once_until_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    starts, refuses = OSError("it has no name yet"), OSError("connection refused")
    learner = Scripted(starts, starts, refuses, refuses, (_END, False), refuses)
    visits = Visits(tmp_path, lambda _url: learner)
    for _ in range(6):
        visits.visit({"a": ["http://a:9090"]})
    told = [message.rpartition(": ")[2] for message in caplog.messages if "is not read" in message]
    assert told == [str(starts), str(refuses), str(refuses)]
