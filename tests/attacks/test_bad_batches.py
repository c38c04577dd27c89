"""Batches that are not finite, against a learner with a real model: none of them ends a run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.threads import Threads
from seedbed.services.learner.training.quarantine import MAX_FILES, Quarantine
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.services.replay.server import ReplayServer
from seedbed.services.replay.shard import Shard
from tests.faults.test_learner import Run, running
from tests.support.processes import START_S
from tests.support.waiting import wait_for


class Poison:
    """Observer of the training thread: makes the reward of the next batches `value`."""

    def __init__(self, run: Run, value: float) -> None:
        self.left, self._value, self._run = 0, value, run
        run.learner.training.observers.append(self)

    def __call__(self, batch: TrainingBatch) -> None:
        if self.left:
            self.left -= 1
            batch.arrays["reward"] = np.full_like(batch.arrays["reward"], self._value)
            built = self._run.learner.components.result(0)
            assert built is not None
            batch.on_device = built.backend.to_device(batch.arrays)


def quarantined(run: Run) -> list[Path]:
    return sorted(run.learner.quarantine.folder.glob("*.npz"))


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.backends
@pytest.mark.parametrize("value", [math.nan, 3e38])
def test_a_bad_batch_is_skipped_kept_and_counted(
    tmp_path: Path, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, "learner.epochs_per_batch=2", "learner.minibatches=1") as run:
        learner, counters = run.learner, run.learner.counters
        poison = Poison(run, value)
        run.trains()
        versions: list[int] = []
        publish = learner.store.publish
        learner.store.publish = lambda params, version: (  # type: ignore[method-assign]
            versions.append(version),
            publish(params, version),
        )[1]
        poison.left = 3
        wait_for(lambda: run.ended.is_set() or counters.skipped_updates == 3, "skips", START_S)
        run.trains()
        assert versions == sorted(versions), "no version goes back"
        assert versions[-1] <= counters.updates + 1, "a skipped update is no version"
        assert learner.telemetry.sessions.discarded_by_reason["its update was skipped"] > 0
        learner.telemetry.tick()
        assert learner.telemetry.numbers["updates_skipped"] == 3
        assert learner.telemetry.status()["counters"]["skipped_updates"] == 3
        assert learner.telemetry.registry.values()["seedbed_updates_skipped_total"] == 3
        learner.quarantine.close()
        file = quarantined(run)[-1]
    assert run.failure is None, run.failure
    out = tmp_path / "shown"
    assert main(["inspect", "unroll", str(file), str(out)]) == 0, capsys.readouterr().err
    with np.load(out / "unroll.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["reward"], np.float32(value))
        assert arrays["action"].shape == (8, 8)
        assert (arrays["first"] == (arrays["flags"] & 8 > 0)).all()
        assert {"behaviour_logits", "version", "previous_action", "state"} <= set(arrays)
    page = (out / "README.txt").read_text()
    assert "bad-days" in page
    assert "which was skipped" in page
    assert (out / "unroll.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.backends
def test_ten_in_a_row_end_the_run_with_the_last_good_parameters(tmp_path: Path) -> None:
    with running(tmp_path, "learner.checkpoint.every_s=1000") as run:
        poison = Poison(run, math.nan)
        run.trains()
        poison.left = 9
        counters = run.learner.counters
        wait_for(lambda: run.ended.is_set() or counters.skipped_updates == 9, "nine", START_S)
        run.trains()  # which are not ten in a row
        poison.left = 10**6
        assert run.ended.wait(START_S)
        assert run.failure is not None
        assert run.failure.code == ExitCode.DIVERGED
        assert "learner.max_skipped_updates is 10" in str(run.failure)
        assert counters.skipped_updates == 19
        newest = run.learner.run_directory.store.newest()
        assert newest is not None
        assert newest.updates == counters.updates
        assert newest.meta["counters"]["skipped_updates"] == 19
        assert all(np.isfinite(array).all() for array in newest.arrays.values())
        assert 0 < len(quarantined(run)) <= MAX_FILES


def test_the_quarantine_keeps_the_newest(tmp_path: Path) -> None:
    batch = {
        "observation": np.zeros((4, 2, 3), np.float32),
        "flags": np.zeros((4, 2), np.uint8),
        "reward": np.zeros((4, 2), np.float32),
        "action": np.zeros((3, 2), np.int32),
        "previous_action": np.zeros(2, np.int32),
        "state": np.zeros((2, 0), np.float32),
    }
    quarantine = Quarantine(tmp_path / "quarantine", "a run")
    for number in range(MAX_FILES + 3):
        quarantine.keep(f"update-{number}", "a test", batch, np.zeros(2))
        quarantine.close()
        os.utime(tmp_path / "quarantine" / f"update-{number}.npz", (number, number))
    kept = {path.stem for path in quarantine.folder.iterdir()}
    assert kept == {f"update-{number}" for number in range(3, MAX_FILES + 3)}
    huge = {**batch, "observation": np.broadcast_to(np.float32(0), (2**30, 2, 3))}
    quarantine.keep("huge", "a test", huge, np.zeros(2))
    quarantine.close()
    assert not (quarantine.folder / "huge.npz").exists()


# --- D1: what a shard has stored ------------------------------------------------------------------

R2D2 = (
    "agent=r2d2",
    "r2d2.burn_in=2",
    "r2d2.dueling_units=8",
    "learner.lstm_units=4",
    "learner.unroll_length=4",
    "learner.replay.capacity=400",
    "learner.replay.min_size=16",
    "learner.replay.ratio=2",
)


@contextmanager
def shard_at(address: str) -> Iterator[Shard]:
    threads, shard = Threads(), Shard(400, 0.9, None)
    server = ReplayServer(shard, address, threads)
    server.start()
    try:
        yield shard
    finally:
        server.close()
        threads.join(20)


def poison_buffer(shard: Shard) -> None:
    """Put into the buffer what its checks refuse: NaN, with priorities that take all draws."""

    def write() -> None:
        buffer: Any = shard.buffer
        items = np.flatnonzero(buffer.ring.is_sampleable)[-12:]
        for name in ("reward", "state"):
            buffer._arrays[name][items] = np.nan
        buffer._arrays["priority"][items] = 1e30
        buffer._tree.set(items, np.full(len(items), 1e27))

    shard._thread.submit(write).result()


@pytest.mark.slow
def test_poison_in_a_shard_ends_neither_the_learner_nor_its_restart(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/shard"
    remote = (*R2D2, "learner.replay.storage=remote", f"learner.replay.shards=['{address}']")
    with shard_at(address) as shard:
        for start in range(2):
            with running(tmp_path, *remote) as run:
                telemetry: Any = run.learner.telemetry
                run.trains()
                poison_buffer(shard)
                wait_for(
                    lambda: run.ended.is_set() or telemetry.replay.buffer.refused > 0,  # noqa: B023
                    "the poison is drawn, and refused",
                    START_S,
                )
                run.trains(30)
                assert run.learner.counters.skipped_updates == 0
                built = run.learner.components.result(0)
                assert built is not None
                for array in built.trainer.params():
                    assert np.isfinite(np.asarray(array)).all()
            assert run.failure is None, (start, run.failure)
