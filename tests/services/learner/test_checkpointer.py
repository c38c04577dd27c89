"""When checkpoints are written; what they are is in test_checkpoint."""

from __future__ import annotations

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


def telemetry() -> Any:
    checkpoints = SimpleNamespace(on_checkpoint=lambda seconds, size, ok: None)
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
