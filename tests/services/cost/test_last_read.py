"""The end of a run of a set: the controller reads the learners' files before they go to zero."""

from __future__ import annotations

from typing import Any

import pytest

from seedbed.services.cost.meter import POLL_INTERVAL_S, ROWS_TIMEOUT_S
from tests.services.cost.test_meter import OVER, FakeCluster, Scene

ALL = ["actor", "replay", "learner"]


class SetScene(Scene):
    """A meter of a release that belongs to a set."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.goal = self.goal._replace(set="rates")
        self.meter = self.new()

    def finished(self, rank: int = 0, **more: Any) -> None:
        self.learner("finished", over=OVER, rank=rank)
        status = self.statuses[rank]
        assert status is not None
        status |= more

    def looks(self) -> None:
        self.passes(POLL_INTERVAL_S)
        self.meter.reconcile()

    def waits(self, kills: bool = False) -> float:
        """Seconds from the first look after the end until the learners go."""
        self.meter.reconcile()
        began = self.now
        while "learner" not in self.cluster.calls:
            assert self.now - began < 1000, "it waits without end"
            if kills:
                self.meter = self.new()
            self.looks()
        return self.now - began


def test_the_learners_go_once_the_last_rows_are_read() -> None:
    scene = SetScene(learners=2)
    scene.finished(0, rows_read=True)
    scene.finished(1, rows_read=False)
    scene.meter.reconcile()
    scene.looks()
    assert scene.cluster.calls == ["actor"], "the reader needs the learners alone"
    assert "finished" not in scene.cluster.kept
    scene.finished(1, rows_read=True)
    scene.looks()
    assert scene.cluster.calls == ALL
    assert "readFrom" not in scene.cluster.kept


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("said", [{}, {"rows_read": False}, {"rows_read": "yes"}])
def test_the_wait_for_a_reader_has_an_end(said: dict[str, Any], kills: bool) -> None:
    scene = SetScene()
    scene.finished(**said)
    assert 20 <= scene.waits(kills) <= ROWS_TIMEOUT_S
    assert scene.cluster.kept["finished"] == OVER


def test_a_learner_that_was_killed_in_the_wait_does_not_begin_it_anew() -> None:
    scene = SetScene()
    scene.finished()
    scene.meter.reconcile()
    scene.statuses = [None]
    for _ in range(8):
        scene.looks()
    assert "learner" not in scene.cluster.calls, "it may come back and be read"
    scene.finished(rows_read=False)
    scene.looks()
    assert scene.cluster.calls[-1] == "learner"


def test_a_release_of_no_set_waits_for_no_reader() -> None:
    scene = Scene()
    scene.learner("finished", over=OVER)
    scene.meter.reconcile()
    assert scene.cluster.calls == ALL


def test_a_persons_pause_waits_for_no_reader() -> None:
    scene = SetScene()
    scene.finished()
    scene.meter.reconcile()
    scene.cluster.kept["paused"] = "lunch"
    scene.looks()
    assert scene.cluster.calls == ALL
    assert "readFrom" not in scene.cluster.kept


def test_a_budget_that_the_meter_ends_waits_for_no_reader() -> None:
    scene = SetScene(budget=1.0)
    scene.learner("training")
    scene.meter.reconcile()
    scene.hours(1.1)
    assert scene.cluster.calls == ALL


def test_an_end_after_another_one_is_waited_for_as_long() -> None:
    scene = SetScene()
    scene.finished()
    scene.meter.reconcile()
    scene.learner("training")  # with another condition
    scene.hours(1)
    assert "readFrom" not in scene.cluster.kept
    scene.finished()
    assert 20 <= scene.waits() <= ROWS_TIMEOUT_S


@pytest.mark.parametrize("text", ["nan", "inf", "soon", "", "0", "99999999999"])
def test_a_time_that_no_meter_wrote_holds_up_no_end(text: str) -> None:
    scene = SetScene()
    scene.finished()
    scene.cluster.kept["readFrom"] = text
    assert scene.waits() <= ROWS_TIMEOUT_S


def test_a_state_that_cannot_be_saved_makes_the_wait_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = SetScene()
    scene.finished()

    def refuse(self: FakeCluster, state: dict[str, str | None]) -> None:
        raise OSError("the API server is away")

    monkeypatch.setattr(FakeCluster, "save_state", refuse)
    assert scene.waits() <= ROWS_TIMEOUT_S + POLL_INTERVAL_S
