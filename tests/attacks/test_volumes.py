"""Volumes and descriptors that fail: each cause has its own sentence, and a checkpoint is written.

Without spare descriptors 120 idle connections ended a learner of 64 descriptors, and the line told
its user to free a volume that was not full.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.checkpoints.files import Files
from seedbed.checkpoints.store import CheckpointStore
from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.replay import mapped_files
from seedbed.replay.mapped_files import open_buffer
from seedbed.runs.directory import open_run_directory
from seedbed.runtime import files
from seedbed.runtime.exit_codes import HELP, ExitCode, SeedbedError
from seedbed.services.learner.background_evaluation import BackgroundEvaluation
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.telemetry.outputs import Outputs
from tests.support.replay_content import SPEC as SEQUENCE

EXPERIMENT_YAML = "name: x\nenvironment: {id: CartPole-v1}"
EXPERIMENT = parse_experiment(EXPERIMENT_YAML)
ARRAYS = {"model/a": np.zeros(9)}
META: dict[str, Any] = {
    "experiment": dump_experiment(EXPERIMENT),
    "spec": EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1).to_json(),
    "counters": {"updates": 1},
}
# A word of the sentence of each cause that no other sentence has.
WORDS = {
    errno.ENOSPC: "enlarge the volume",
    errno.EDQUOT: "enlarge the volume",
    errno.EROFS: "read-only",
    errno.EMFILE: "ulimit -n",
    errno.ENFILE: "fs.file-max",
    errno.ENOMEM: "memory",
}


def check(said: str, cause: int) -> None:
    assert os.strerror(cause) in said or cause == errno.ENOMEM
    wanted = WORDS[cause]
    assert wanted in said
    others = set(WORDS.values()) - {wanted}
    assert not [word for word in others if word in said.replace(os.strerror(cause), "")]


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Take every descriptor that this process may have, as idle connections do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0], 40) + 30, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_checkpoints_are_written_when_descriptors_have_run_out(tmp_path: Path) -> None:
    with open_run_directory(tmp_path / "run", EXPERIMENT) as run:
        with no_descriptors():
            with pytest.raises(OSError, match="Too many open files"):
                socket.socket()
            for updates in (1, 2, 3, 4):
                run.store.save(ARRAYS, META, updates)
            run.store.save_best("4", 1.0)
            newest = run.store.newest()
            assert newest is not None
            with pytest.raises(OSError, match="Too many open files"):
                socket.socket()  # the spare ones are held again
        assert [name[-14:-12] for name in run.store.names()] == ["03", "04"]
        assert run.store.has_best()
    assert CheckpointStore(str(tmp_path / "run" / "checkpoints")).read("best").updates == 1


def test_without_descriptors_the_newest_checkpoint_is_not_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be opened for now is whole: the run must not go back behind it."""
    store = CheckpointStore(str(tmp_path))
    store.save(ARRAYS, META, 1)
    store.save(ARRAYS, META, 2)

    def fails(self: Files, name: str) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Files, "read", fails)
    with pytest.raises(SeedbedError, match="ulimit -n") as caught:
        store.newest()
    assert caught.value.code is ExitCode.CHECKPOINT_READ
    monkeypatch.undo()
    store.save(ARRAYS, META, 3)
    assert [name[-14:-12] for name in store.names()] == ["02", "03"]


@pytest.mark.parametrize("cause", WORDS, ids=errno.errorcode.get)
def test_a_checkpoint_that_cannot_be_written_says_what_helps(
    cause: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Files, name: str, content: bytes) -> None:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(Files, "write", fails)
    with pytest.raises(SeedbedError) as caught:
        CheckpointStore(str(tmp_path)).save(ARRAYS, META, 1)
    assert caught.value.code is ExitCode.CHECKPOINT_WRITE
    check(str(caught.value), cause)
    assert "volume" not in HELP[ExitCode.CHECKPOINT_WRITE], "the line says what helps"


def test_a_checkpoint_for_which_memory_is_short_is_one_that_was_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("seedbed.checkpoints.store.encode", fails)
    with pytest.raises(SeedbedError) as caught:
        CheckpointStore(str(tmp_path)).save(ARRAYS, META, 1)
    assert caught.value.code is ExitCode.CHECKPOINT_WRITE
    check(str(caught.value), errno.ENOMEM)


@pytest.mark.parametrize("cause", WORDS, ids=errno.errorcode.get)
def test_a_progress_file_that_cannot_be_written_says_what_helps(
    cause: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr("seedbed.telemetry.progress.ProgressFile.append", fails)
    outputs = Outputs(EXPERIMENT, tmp_path, StringIO())
    with caplog.at_level(logging.WARNING):
        outputs.write(_Row(), [], dict, lambda: None)  # type: ignore[arg-type, return-value]
    line = next(line for line in caplog.messages if "cannot write progress.csv" in line)
    check(line, cause)


class _Row(dict[str, Any]):
    def __missing__(self, key: str) -> int:
        return 0


@pytest.mark.parametrize("cause", WORDS, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["posix_fallocate", "fsync"])
def test_replay_files_that_cannot_be_made_say_what_helps(
    place: str, cause: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(mapped_files.os, place, fails)
    with pytest.raises(SeedbedError) as caught:
        open_buffer(tmp_path, SEQUENCE, 100, 0.7)
    monkeypatch.undo()
    assert caught.value.code is ExitCode.REPLAY_FILES
    check(str(caught.value), cause)
    open_buffer(tmp_path, SEQUENCE, 100, 0.7).close()


@pytest.mark.parametrize("what", ["checkpoint", "replay", "run"])
def test_a_volume_that_is_read_only_is_called_so(what: str, tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    uses: dict[str, Callable[[], object]] = {
        "checkpoint": lambda: CheckpointStore(str(tmp_path)).save(ARRAYS, META, 1),
        "replay": lambda: open_buffer(tmp_path, SEQUENCE, 100, 0.7),
        "run": lambda: open_run_directory(tmp_path / "run", EXPERIMENT),
    }
    try:
        with pytest.raises(SeedbedError) as caught:
            uses[what]()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    check(str(caught.value), errno.EROFS)


def test_names_are_on_the_disk_before_what_relies_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss a description of complete files names files that are there."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(file: int) -> None:
        events.append(f"fsync {Path(f'/proc/self/fd/{file}').readlink().name}")
        fsync(file)

    def replaced(self: Path, target: Path) -> Path:
        events.append(f"replace {Path(target).name}")
        return replace(self, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    open_buffer(tmp_path / "deep" / "replay", SEQUENCE, 8, 0.7).close()
    complete = [place for place, event in enumerate(events) if event == "replace replay.json"][1]
    before = events[:complete]
    assert before.index(f"fsync {tmp_path.name}") < before.index("fsync deep") < 4
    last_array = max(place for place, event in enumerate(before) if event.endswith(".bin"))
    assert "fsync replay" in before[last_array:], "names of the arrays"
    assert events[complete + 1] == "fsync replay", "name of the description"
    assert "fsync .tmp-replay.json" in before, "content of the description"

    events.clear()
    CheckpointStore(str(tmp_path / "run" / "checkpoints")).save(ARRAYS, META, 1)
    assert events[:2] == [f"fsync {tmp_path.name}", "fsync run"], "names of the directories"
    assert events[-1] == "fsync checkpoints"


@pytest.mark.parametrize(
    "place", ["seedbed.launch.supervisor.subprocess.Popen", "tempfile.TemporaryFile"]
)
def test_an_evaluation_that_cannot_be_started_ends_no_learner(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    class Written:
        idle, newest = True, "checkpoint-000000000001.safetensors"

        def request(self) -> None:
            """Nothing: it is written."""

    settings = parse_experiment(EXPERIMENT_YAML, ["evaluation.every_frames=1"])
    telemetry: Any = SimpleNamespace(counters=SimpleNamespace(env_frames=0))
    with open_run_directory(tmp_path / "run", settings) as run:
        evaluation = BackgroundEvaluation(settings, run, telemetry)
        telemetry.counters.env_frames = 5
        monkeypatch.setattr(place, fails)
        for _ in range(3):
            evaluation.poll(Written())  # type: ignore[arg-type]
    (line,) = (line for line in caplog.messages if "cannot be evaluated" in line)
    check(line, errno.EMFILE)


def test_a_run_opens_again_on_a_full_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart there ended with code 1, "a defect", and hid the cause of the first end."""
    open_run_directory(tmp_path / "run", EXPERIMENT).close()

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("seedbed.runs.directory.atomic_write", is_full)
    open_run_directory(tmp_path / "run", EXPERIMENT).close()  # nothing has changed
    changed = parse_experiment(f"{EXPERIMENT_YAML}\nlogging: {{interval_s: 7}}")
    with pytest.raises(SeedbedError, match="enlarge the volume") as caught:
        open_run_directory(tmp_path / "run", changed)
    assert caught.value.code is ExitCode.RUN_DIRECTORY
