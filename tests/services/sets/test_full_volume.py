"""The volume of a set's controller is full: nothing is lost or started twice, and it goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from seedbed.services.sets.metrics import SetMetrics
from seedbed.sets.ends import read_ends
from seedbed.sets.folder import read_members
from seedbed.sets.needs import Limits
from tests.support.set_cluster import (
    RATE,
    STEP_S,
    FakeLearner,
    SetCluster,
    controller,
    spec,
    until,
)

LR = "learner.optimizer.learning_rate=1e-3,2e-3,3e-3"


class Volume:
    """Lets each write below a folder fail while it is full, and counts those that do not."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.is_full, self.writes, self.full_at = False, 0, -1
        write, copy = Path.open, FakeLearner.copy

        def opened(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if folder in path.parents and mode[0] in "wax":
                self._check()
            return write(path, mode, *rest, **options)

        def copied(learner: FakeLearner, to: Path) -> bool:
            self._check()
            return copy(learner, to)

        patch.setattr(Path, "open", opened)
        patch.setattr(FakeLearner, "copy", copied)

    def _check(self) -> None:
        self.writes += 1
        self.is_full |= self.writes == self.full_at
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.slow
def test_a_volume_that_is_full_at_any_write_loses_nothing_and_starts_nothing_twice(
    tmp_path: Path,
) -> None:
    wanted = spec(LR, "stop.env_frames=200000", limits=Limits(1))
    names = sorted(run.name for run in wanted.wanted.runs)

    def story(full_at: int) -> int:
        base = tmp_path / str(full_at)
        cluster = SetCluster(base / "cluster")
        with pytest.MonkeyPatch.context() as patch:
            volume = Volume(base / "set", patch)
            volume.full_at = full_at
            one, full, told = controller(cluster, wanted, base / "set"), 0, set()
            for _ in range(400):
                one.reconcile()
                cluster.step()
                full += volume.is_full
                told |= {one.holds} if volume.is_full else set()
                volume.is_full &= full < 20  # somebody makes room after 100 s
                if not one.book.up() and set(cluster.states().values()) == {"finished"}:
                    break
            else:
                raise AssertionError(f"full at {full_at}: {cluster.rows}, {one.errors}")
        again = {name for name in cluster.begun if cluster.begun.count(name) > 1}
        resumed = {name for name in again if f"PATCH {name}-state" in cluster.log}
        assert again == resumed, "only to bring home what there was no room for"
        assert sorted(set(cluster.begun)) == names
        assert cluster.most == 1
        assert {kind for kind, _ in cluster.objects} == {"ConfigMap"}
        assert all(not read_ends(member) for member in read_members(base / "set"))
        assert not one.holds
        if full_at > 0:
            assert any("no room on the controller's volume (No space left" in one for one in told)
        return volume.writes

    writes = story(-1)
    assert writes > 30
    for number in range(1, writes, 5):
        story(number)


def test_the_bound_ends_all_runs_though_the_volume_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SetCluster(tmp_path)
    dollars = 20 * RATE / 3600 * STEP_S
    wanted = spec(LR, "stop.env_frames=700000", budget={"dollars": dollars})
    volume = Volume(tmp_path / "set", monkeypatch)
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: list(cluster.states().values()).count("training") >= 1)
    volume.is_full = True
    one.reconcile()
    assert "enlarge it" in cluster.data["set"]["holds"]
    held = SetMetrics("lab", one).held
    assert [by for (_, by), value in held.items() if value] == ["room"]
    for _ in range(60):
        one.reconcile()
        cluster.step()
    assert not [pod for pod in cluster._pods() if pod.component == "learner"]
    assert float(cluster.data["set"]["dollars"]) <= dollars + 3 * 2 * RATE / 3600 * STEP_S
    volume.is_full = False
    until(cluster, one, lambda: not one.book.up())
    assert set(cluster.states().values()) == {"waiting"}
    assert "budget.dollars" in one.holds
