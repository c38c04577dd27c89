"""Checkpoints survive kill -9, full disks and damage; what is read is what was written."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from seedbed.checkpoints.format import DamagedCheckpointError, decode, encode
from seedbed.checkpoints.store import CheckpointStore
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec, EnvironmentSpec

ROOT = Path(__file__).parents[2]
SPEC = EnvironmentSpec("atari:Pong", ArraySpec((84, 84), "uint8"), 18, 4)


def arrays_of(updates: int) -> dict[str, np.ndarray]:
    """Every kind that a state holds: matrices, a scalar counter, nothing at all, any order."""
    return {
        "model/dense/kernel": np.full((3, 4), updates, np.float32),
        "model/dense/transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "optimizer/iteration": np.array(updates, np.int64),
        "optimizer/empty": np.zeros((0, 2), np.float32),
        "random/flags": np.array([True, False]),
    }


def meta_of(updates: int) -> dict[str, object]:
    random = {"inference": np.random.default_rng(updates).bit_generator.state}
    text = 'name: pong  # a text that tries: "sha256":"' + "a" * 64 + '"\n'
    counters = {"updates": updates, "env_frames": updates * 80}
    return {
        "experiment": text,
        "spec": SPEC.to_json(),
        "counters": counters,
        "random": random,
    }


def save(store: CheckpointStore, updates: int) -> None:
    store.save(arrays_of(updates), meta_of(updates), updates)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "deep" / "er"))
    saved = store.save(arrays_of(7), meta_of(7), 7)
    assert saved.path == str(tmp_path / "deep" / "er" / "checkpoint-000000000007.safetensors")
    assert saved.bytes == Path(saved.path).stat().st_size

    read = CheckpointStore(str(tmp_path / "deep" / "er")).newest()
    assert read is not None
    assert read.path == saved.path
    assert read.meta == meta_of(7)
    assert (read.updates, read.spec) == (7, SPEC)
    for name, array in arrays_of(7).items():
        assert read.arrays[name].dtype == array.dtype, name
        assert read.arrays[name].shape == array.shape, name  # a scalar stays a scalar
        np.testing.assert_array_equal(read.arrays[name], array)
    assert read.arrays.keys() == arrays_of(7).keys()
    # The random state goes on where it was.
    generator = np.random.default_rng()
    generator.bit_generator.state = read.meta["random"]["inference"]
    assert generator.integers(1 << 60) == np.random.default_rng(7).integers(1 << 60)


def test_any_safetensors_reader_opens_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    saved = CheckpointStore(str(tmp_path)).save(arrays_of(1), meta_of(1), 1)
    np.testing.assert_array_equal(load_file(saved.path)["model/dense/kernel"], np.ones((3, 4)))


def test_every_flipped_byte_and_every_cut_is_noticed() -> None:
    content = encode({"w": np.arange(8, dtype=np.float32)}, meta_of(1))
    decode(content)
    for at in range(len(content)):
        for damaged in (
            content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :],
            content[:at],
        ):
            with pytest.raises(DamagedCheckpointError):
                decode(damaged)
    with pytest.raises(DamagedCheckpointError):
        decode(content + b"\0")


def test_keeps_the_newest_and_best_apart(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), keep=2)
    for updates in (5, 10):
        save(store, updates)
    store.save_best("5", 1.0)
    for updates in (20, 1000):
        save(store, updates)
    assert store.names() == [
        "checkpoint-000000000020.safetensors",
        "checkpoint-000000001000.safetensors",
    ]
    assert store.read("best").updates == 5
    assert store.read("newest").updates == 1000
    assert store.read("20").updates == 20
    assert store.read(store.names()[0]).updates == 20
    with pytest.raises(SeedbedError, match=r"000000000005.*there are: best, 20, 1000") as caught:
        store.read("5")
    assert caught.value.code == ExitCode.CHECKPOINT_READ


def test_best_has_the_evaluation_that_made_it(tmp_path: Path) -> None:
    """It is newer than the checkpoint: a run that resumes would replace the best by a worse one."""
    store = CheckpointStore(str(tmp_path))
    assert store.best_evaluation() is None
    save(store, 5)
    store.save_best("5", 96.5)
    save(store, 6)
    assert CheckpointStore(str(tmp_path)).best_evaluation() == 96.5
    (tmp_path / "best.safetensors").write_bytes(b"cut")
    assert store.best_evaluation() is None, "the next one replaces it"


def test_a_pinned_one_stays_while_it_is_evaluated(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), keep=2)
    save(store, 1)
    store.pinned = store.names()[0]
    for updates in (2, 3, 4):
        save(store, updates)
    store.save_best(store.pinned, 1.0)
    assert [name[11:23].lstrip("0") for name in store.names()] == ["1", "3", "4"]
    assert store.read("best").updates == 1


def test_two_threads_may_save_at_the_same_time(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), keep=2)
    save(store, 1)
    store.pinned = store.names()[0]
    with ThreadPoolExecutor(2) as pool:
        # As the learner does it: one thread saves, in order, and another keeps the best.
        saver = pool.submit(lambda: [save(store, updates) for updates in range(2, 40)])
        keeper = pool.submit(lambda: [store.save_best("1", 1.0) for _ in range(38)])
        saver.result(timeout=60)
        keeper.result(timeout=60)
    assert store.read("newest").updates == 39
    assert store.read("best").updates == 1


def test_without_any_there_is_none(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "not-there"))
    assert store.newest() is None
    with pytest.raises(SeedbedError, match="any checkpoint; there are: none"):
        store.read("newest")


def test_a_damaged_newest_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(str(tmp_path))
    for updates in (1, 2):
        save(store, updates)
    newest = tmp_path / store.names()[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        read = store.newest()
    assert read is not None
    assert read.updates == 1
    assert f"{newest} is skipped" in caplog.text
    assert "cut short" in caplog.text
    with pytest.raises(SeedbedError, match=str(newest)):
        store.read("2")

    older = tmp_path / store.names()[0]
    older.write_bytes(b"")
    with pytest.raises(SeedbedError) as caught:
        store.newest()
    assert caught.value.code == ExitCode.CHECKPOINT_READ
    assert str(newest) in str(caught.value)
    assert str(older) in str(caught.value)


def test_numbers_that_no_learner_saves_are_damage(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    save(store, 1)
    poisoned = {**arrays_of(2), "optimizer/m": np.array([0, np.nan], np.float32)}
    store.save(poisoned, meta_of(2), 2)
    read = store.newest()
    assert read is not None
    assert read.updates == 1
    with pytest.raises(SeedbedError, match="optimizer/m holds NaN or infinite numbers"):
        store.read("2")


def test_a_damaged_newer_one_never_pushes_out_a_whole_one(tmp_path: Path) -> None:
    """100 whole, 200 damaged: the run goes on from 100, and 200 must not count as newest."""
    save(CheckpointStore(str(tmp_path)), 100)
    save(CheckpointStore(str(tmp_path)), 200)
    damaged = tmp_path / "checkpoint-000000000200.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    store = CheckpointStore(str(tmp_path))
    read = store.newest()
    assert read is not None
    save(store, 250)  # past the damaged one at once
    assert [name[11:23] for name in store.names()] == ["000000000100", "000000000250"]
    assert (tmp_path / f"{damaged.name}.aside").exists()

    save(store, 150)  # the user went back to 100: what is newer must not come back
    assert [name[11:23] for name in store.names()] == ["000000000100", "000000000150"]


def test_archive_and_delete_touch_only_checkpoints(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    assert store.archive() is None
    for number in (1, 2):
        save(store, number)
        store.save_best("newest", 1.0)
        assert store.archive() == f"{tmp_path}/aside-{number}"
        assert store.newest() is None
    assert CheckpointStore(str(tmp_path / "aside-2")).read("best").updates == 2
    save(store, 3)
    assert store.delete_all() == ["checkpoint-000000000003.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aside-1", "aside-2", "notes.txt"]


WRITER = """
import sys
import numpy as np
from seedbed.checkpoints.store import CheckpointStore
from tests.checkpoints.test_checkpoint import meta_of
store = CheckpointStore(sys.argv[1])
array = np.random.default_rng(0).random(1 << 20)  # 8 MiB
newest = store.newest()
updates = newest.updates if newest else 0
while True:
    updates += 1
    store.save({"model/a": array + updates}, meta_of(updates), updates)
    print(updates, flush=True)
"""


def test_kill_9_while_writing_leaves_a_whole_newest(tmp_path: Path) -> None:
    base = np.random.default_rng(0).random(1 << 20)
    seen_halves = 0
    saved = 0
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        saved = int(writer.stdout.readline())  # this one was said to be safe
        # Kill as soon as a half-written file is seen, to be in the middle of it.
        deadline = time.monotonic() + 20
        while not any(tmp_path.glob(".tmp-*")) and time.monotonic() < deadline:
            pass
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate(timeout=20)[0]
        saved = max([saved, *map(int, rest.split())])
        seen_halves += any(tmp_path.glob(".tmp-*"))

        newest = CheckpointStore(str(tmp_path)).newest()
        assert newest is not None
        assert newest.updates >= saved  # never back past what was said to be saved
        np.testing.assert_array_equal(newest.arrays["model/a"], base + newest.updates)
    assert seen_halves, "no kill hit a write: the test tests nothing"
    save(CheckpointStore(str(tmp_path)), saved + 100)
    assert not any(tmp_path.glob(".tmp-*"))  # the killed writer's leftovers are gone
    assert len(CheckpointStore(str(tmp_path)).names()) == 2


def test_a_full_disk_leaves_the_older_ones(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        store = CheckpointStore(str(tmp_path))
        save(store, 1)
        big = {"model/a": np.zeros(1 << 18)}  # 2 MiB
        with pytest.raises(SeedbedError, match="No space left") as caught:
            store.save(big, {}, 2)
        assert caught.value.code == ExitCode.CHECKPOINT_WRITE
        assert [path.name for path in tmp_path.iterdir()] == store.names()  # no half file stays
        assert store.read("newest").updates == 1
        save(store, 3)  # and writes again once there is room
        assert store.read("newest").updates == 3
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


LIMITED = """
import resource, sys
import numpy as np
from seedbed.checkpoints.store import CheckpointStore
from seedbed.runtime.exit_codes import SeedbedError
from tests.checkpoints.test_checkpoint import meta_of
store = CheckpointStore(sys.argv[1])
store.save({"model/a": np.zeros(8)}, meta_of(1), 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    store.save({"model/a": np.zeros(8192)}, {}, 2)
except SeedbedError as error:
    print(error)
"""


def test_a_write_that_is_cut_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """The kernel takes the first 4096 bytes and refuses the rest, as a disk that fills up does."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)  # there is such a limit on this system
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "File too large" in done.stdout, done.stderr
    store = CheckpointStore(str(tmp_path))
    assert store.read("newest").updates == 1
    assert [path.name for path in tmp_path.iterdir()] == store.names()


def test_a_bucket_works_the_same() -> None:
    import fsspec

    directory = f"memory://bucket-{os.getpid()}/run"
    store = CheckpointStore(directory, keep=2)
    assert store.newest() is None
    for updates in (1, 2, 3):
        save(store, updates)
    store.save_best("2", 1.0)
    assert len(store.names()) == 2
    assert store.read("best").updates == 2
    files = fsspec.filesystem("memory")
    newest = f"/bucket-{os.getpid()}/run/{store.names()[-1]}"
    content = files.cat_file(newest)
    files.pipe_file(newest, content[:-1])
    read = CheckpointStore(directory).newest()
    assert read is not None
    assert read.updates == 2
    files.pipe_file(f"/bucket-{os.getpid()}/run/.tmp-dead-checkpoint", b"half")
    save(store, 4)
    assert not [
        name for name in files.ls(f"/bucket-{os.getpid()}/run", detail=False) if ".tmp" in name
    ]
    assert store.archive() == f"{directory}/aside-1"
    assert store.newest() is None


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    blocked = (
        "import sys; sys.modules['gcsfs'] = None\n"
        "from seedbed.checkpoints.store import CheckpointStore\n"
        "from seedbed.runtime.exit_codes import SeedbedError\n"
        "try: CheckpointStore('gs://bucket/run')\n"
        "except SeedbedError as error: print(int(error.code), error)\n"
    )
    done = subprocess.run([sys.executable, "-c", blocked], cwd=ROOT, capture_output=True, text=True)
    assert "pip install gcsfs" in done.stdout, done.stderr
    with pytest.raises(SeedbedError, match="nosuch"):
        CheckpointStore("nosuch://bucket/run")
