"""When checkpoints are written; what they are is in test_checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from seedbed.checkpoints.store import CheckpointStore, SavedCheckpoint
from seedbed.config.learner import Checkpoint as Settings
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner import checkpointer
from seedbed.telemetry import Telemetry


class HangingStore(CheckpointStore):
    """A volume that takes a write and never comes back, until `free`."""

    free = threading.Event()

    def save(self, arrays: Any, meta: Any, updates: int) -> SavedCheckpoint:
        self.free.wait()
        raise AssertionError("nobody waits for this one any more")


def test_a_volume_that_hangs_does_not_keep_the_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "LAST_S", 0.05)
    store = HangingStore(str(tmp_path))
    saver = checkpointer.Checkpointer(
        Settings(), store, cast(Telemetry, None), lambda: {"counters": {"updates": 3}}
    )
    with pytest.raises(
        SeedbedError, match=r"not written within 0.05 s: the volume hangs"
    ) as caught:
        saver.save_last({"x": np.zeros(3)}, finished=None)
    assert caught.value.code is ExitCode.CHECKPOINT_WRITE
    # No thread that the interpreter waits for at its end.
    assert all(t.daemon for t in threading.enumerate() if t.name == "checkpoint")
    store.free.set()
