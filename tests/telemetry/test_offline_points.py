"""An offline W&B run whose processes are killed: each point is there once, with its settings."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from seedbed.telemetry.curves import Points
from seedbed.telemetry.offline_points import POINTS_FILE
from seedbed.telemetry.weights_and_biases import WandbRun
from tests.support.telemetry_runs import experiment
from tests.support.waiting import wait_for


class Package(types.ModuleType):
    """W&B as it is imported: the steps of each run are in memory, and in a file after `finish`."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.dir = ""
        self.steps: list[int] = []

    def init(self, **settings: Any) -> Package:
        runs = Path(settings["dir"]) / "wandb"
        directory = runs / f"offline-run-{len(list(runs.glob('*')))}-{len(self.steps)}"
        (directory / "files").mkdir(parents=True)
        self.dir, self.steps = str(directory / "files"), []
        return self

    def define_metric(self, *_: Any, **__: Any) -> None:
        pass

    def log(self, values: dict[str, float], step: int, commit: bool) -> None:
        assert commit
        self.steps.append(step)
        # Of what is in the last block, nothing is in the file yet.
        self._write(self.steps[:-2])

    def finish(self) -> None:
        self._write(self.steps)

    def _write(self, steps: list[int]) -> None:
        (Path(self.dir).parent / "steps").write_text(" ".join(map(str, steps)))


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", Package())


def log(run_dir: Path, frames: list[int]) -> WandbRun:
    """Log one interval at each of some frames, as a process does; it is killed after that."""
    settings = {"wandb": {"enabled": True, "mode": "offline"}}
    run = WandbRun(experiment(logging=settings), run_dir)
    for at in frames:
        run.log([Points(at, {"charts/mean_return": float(at)})])
    wait_for(lambda: frames[-1:] == sys.modules["wandb"].steps[-1:], "the last step")
    return run


def steps(run_dir: Path) -> list[int]:
    files = sorted(run_dir.glob("wandb/*/steps"))
    return sorted(int(step) for file in files for step in file.read_text().split())


def test_after_two_kills_no_step_is_missing_and_none_is_there_twice(
    tmp_path: Path,
) -> None:
    log(tmp_path, [10, 20, 30])
    assert steps(tmp_path) == [10], "W&B had two steps in memory"
    log(tmp_path, [40, 50])
    last = log(tmp_path, [60, 70])
    last.close()
    assert steps(tmp_path) == [10, 20, 30, 40, 50, 60, 70]
    assert not (tmp_path / POINTS_FILE).exists()


def test_a_finished_run_of_the_tracker_is_left_as_it_is(tmp_path: Path) -> None:
    log(tmp_path, [10, 20]).close()
    log(tmp_path, [30]).close()
    assert steps(tmp_path) == [10, 20, 30]
    assert len(list(tmp_path.glob("wandb/*"))) == 2


def test_what_was_sent_unfinished_is_neither_removed_nor_sent_again(
    tmp_path: Path,
) -> None:
    log(tmp_path, [10, 20, 30])
    (sent,) = tmp_path.glob("wandb/*")
    (sent / "run-x.wandb.synced").touch()
    log(tmp_path, [40])
    log(tmp_path, [50]).close()
    assert steps(tmp_path) == [10, 40, 50]


def test_a_point_that_the_tracker_did_not_take_is_logged_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = log(tmp_path, [10])
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["wandb"], "log", lambda *_, **__: 1 / 0)
        run.log([Points(20, {"charts/mean_return": 1.0})])
        with pytest.raises(ZeroDivisionError):
            run.close()
    log(tmp_path, [30]).close()
    assert steps(tmp_path) == [10, 20, 30]


def test_a_line_that_a_full_volume_has_cut_takes_no_other_with_it(
    tmp_path: Path,
) -> None:
    log(tmp_path, [10])
    with (tmp_path / POINTS_FILE).open("a") as file:
        file.write('\n{"step": 2')
    log(tmp_path, [20])
    log(tmp_path, [30]).close()
    assert steps(tmp_path) == [10, 20, 30]
