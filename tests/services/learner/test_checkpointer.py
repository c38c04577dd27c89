"""When checkpoints are written; what they are is in test_checkpoint."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.checkpoints.store import CheckpointStore, SavedCheckpoint
from seedbed.config.learner import Checkpoint as Settings
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner import checkpointer
from seedbed.telemetry import Counters
from tests.support.waiting import wait_for


class HangingStore(CheckpointStore):
    """A volume that takes a write and never comes back, until `free`."""

    free = threading.Event()

    def save(self, arrays: Any, meta: Any, updates: int) -> SavedCheckpoint:
        self.free.wait()
        raise AssertionError("nobody waits for this one any more")


class FullStore(CheckpointStore):
    """A volume that is full in the seconds from `begins` until `ends`; `tries` are all times."""

    def __init__(self, directory: str, now: list[float], begins: float, ends: float) -> None:
        super().__init__(directory)
        self.now, self.begins, self.ends = now, begins, ends
        self.tries: list[float] = []
        self.saved: list[float] = []

    def save(self, arrays: Any, meta: Any, updates: int) -> SavedCheckpoint:
        (now,) = self.now
        self.tries.append(now)
        if self.begins <= now < self.ends:
            raise SeedbedError(ExitCode.CHECKPOINT_WRITE, "No space left on device")
        self.saved.append(now)
        return SavedCheckpoint(path=f"at {now:g}", seconds=0.0, bytes=0)


class Run:
    """A checkpointer with a clock of its own, whose volume is full for a while.

    Args:
        every_s, deadline_s: as of `learner.checkpoint`.
        begins, ends: seconds between which the volume is full.
    """

    def __init__(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        every_s: float,
        begins: float,
        ends: float,
        deadline_s: float = 300.0,
    ) -> None:
        self.now = [0.0]
        self.failed = 0
        clock = SimpleNamespace(monotonic=lambda: self.now[0], sleep=self._sleep)
        monkeypatch.setattr(checkpointer, "time", clock)
        self.store = FullStore(str(tmp_path), self.now, begins, ends)
        self.saver = checkpointer.Checkpointer(
            Settings(every_s=every_s, deadline_s=deadline_s), self.store, telemetry(self._count),
            lambda: {"counters": {"updates": 7}},
        )  # fmt: skip

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now[0] += seconds

    def _count(self, seconds: float, size: int, ok: bool) -> None:
        self.failed += not ok

    def until(self, end: float, step: float = 0.5) -> None:
        """Poll each `step` seconds, with each write ended before the next poll."""
        while self.now[0] < end:
            self.now[0] += step
            for _ in range(3):  # request, write, finish
                self.saver.poll(state)
                if self.saver._writing is not None:
                    wait_for(self.saver._writing.done, "the write has ended")


def state() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result({"x": np.zeros(3)})
    return future


def telemetry(on_checkpoint: Any = lambda seconds, size, ok: None) -> Any:
    checkpoints = SimpleNamespace(on_checkpoint=on_checkpoint)
    return SimpleNamespace(counters=Counters(updates=7), checkpoints=checkpoints)


class Store(CheckpointStore):
    def save(self, arrays: Any, meta: Any, updates: int) -> SavedCheckpoint:
        return SavedCheckpoint(path=f"at {updates}", seconds=0.0, bytes=0)


def test_the_first_checkpoint_comes_soon_after_the_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(checkpointer, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stats = telemetry()
    saver = checkpointer.Checkpointer(
        Settings(every_s=300.0), Store(str(tmp_path)), stats,
        lambda: {"counters": {"updates": stats.counters.updates}},
    )  # fmt: skip
    requests: list[float] = []

    def state() -> Future[Any]:
        requests.append(now[0])
        future: Future[Any] = Future()
        future.set_result({"x": np.zeros(3)})
        return future

    for _ in range(1000):  # seconds
        now[0] += 1.0
        if now[0] == 200.0:
            stats.counters.updates += 1
        saver.poll(state)
        if saver._writing is not None:
            wait_for(saver._writing.done, "it is written")
    assert requests == [215.0, 515.0, 815.0]


def test_a_volume_that_hangs_does_not_keep_the_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "LAST_S", 0.05)
    store = HangingStore(str(tmp_path))
    saver = checkpointer.Checkpointer(
        Settings(), store, telemetry(), lambda: {"counters": {"updates": 3}}
    )
    with pytest.raises(
        SeedbedError, match=r"not written within 0.05 s: the volume hangs"
    ) as caught:
        saver.save_last({"x": np.zeros(3)}, finished=None)
    assert caught.value.code is ExitCode.CHECKPOINT_WRITE
    # No thread that the interpreter waits for at its end.
    assert all(t.daemon for t in threading.enumerate() if t.name == "checkpoint")
    store.free.set()


@pytest.mark.parametrize("every_s", [0.5, 1.0, 60.0, 3600.0])
def test_a_volume_that_is_full_for_moments_ends_nothing(
    every_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight seconds are eight tries, or one; the next write comes soon after, and not at once."""
    begins, ends = every_s, every_s + 8.0
    run = Run(tmp_path, monkeypatch, every_s, begins, ends)
    run.until(ends + 20.0)
    assert run.failed >= 2
    assert min(at for at in run.store.saved if at > begins) <= ends + 9.0
    failed = [at for at in run.store.tries if begins <= at < ends]
    assert all(after - before >= 1.0 for before, after in itertools.pairwise(failed))


@pytest.mark.parametrize("every_s", [1.0, 3600.0])
def test_a_volume_that_stays_full_ends_the_run_at_the_deadline(
    every_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, every_s, every_s, 1e9, deadline_s=120.0)
    with pytest.raises(SeedbedError, match="No space left") as caught:
        run.until(every_s + 1000.0)
    assert caught.value.code is ExitCode.CHECKPOINT_WRITE
    assert run.now[0] - every_s == 120.0
    pauses = [b - a for a, b in itertools.pairwise(run.store.tries)]
    assert max(pauses) <= min(30.5, max(every_s, 1.0))
    assert run.failed == len(run.store.tries)


def test_a_write_that_succeeds_begins_the_time_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, 10.0, 10.0, 100.0, deadline_s=120.0)
    run.until(130.0)
    assert run.store.saved
    run.store.begins, run.store.ends = 140.0, 240.0
    run.until(300.0)  # 100 s and 100 s, and never 120 in a row
    assert run.store.saved[-1] > 240.0


def test_the_last_checkpoint_is_tried_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, 3600.0, 0.0, 8.0)
    run.saver.save_last({"x": np.zeros(3)}, finished=None)
    assert run.saver.newest == "at 8"
    assert run.store.tries == [0.0, 1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(("deadline_s", "ends_at"), [(300.0, 30.0), (5.0, 5.0)])
def test_the_last_checkpoint_holds_no_run_for_long(
    deadline_s: float, ends_at: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, 3600.0, 0.0, 1e9, deadline_s)
    with pytest.raises(SeedbedError, match="No space left"):
        run.saver.save_last({"x": np.zeros(3)}, finished=None)
    assert run.now[0] == ends_at


def test_a_run_that_ended_for_its_volume_has_one_last_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, 1.0, 1.0, 1e9, deadline_s=20.0)
    with pytest.raises(SeedbedError):
        run.until(100.0)
    before = len(run.store.tries)
    with pytest.raises(SeedbedError):
        run.saver.save_last({"x": np.zeros(3)}, finished=None)
    assert len(run.store.tries) == before + 1
