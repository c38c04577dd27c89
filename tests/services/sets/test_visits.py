"""What the controller of a set keeps of the learners that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seedbed.services.sets.rows import Visits

_END = {"over": "stop.env_frames: 6012 of 6000", "process": {"pid": 7, "start_ticks": 1}}


class Scripted:
    """A learner with one status and one answer after the other."""

    def __init__(self, *answers: tuple[dict[str, Any], bool]) -> None:
        self._answers = list(answers)
        self._whole = False

    def status(self) -> dict[str, Any]:
        status, self._whole = self._answers.pop(0)
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
