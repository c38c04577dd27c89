"""What the meter learns of the learners, whatever they answer and however slowly."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from seedbed.services.cost import learners
from seedbed.services.cost.learners import Learners

STATUS = {
    "state": "training", "over": None, "run_dir": None, "resumed_dollars": 0.0,
    "counters": {"env_frames": 5, "dollars": 0.0},
}  # fmt: skip


def test_a_learner_that_answers_for_ever_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learners, "DEADLINE_S", 0.2)
    ends, asked = threading.Event(), []

    def drips() -> Any:
        asked.append(1)
        ends.wait(60)
        return STATUS

    both = Learners([drips, lambda: STATUS], "")
    try:
        for _ in range(3):
            assert both.poll() == [None, STATUS]
        assert len(asked) == 1, "one question at a time"
    finally:
        ends.set()
    monkeypatch.setattr(learners, "DEADLINE_S", 60.0)
    assert both.poll() == [STATUS, STATUS]
