"""A run directory belongs to one learner, resumes by itself, and loses nothing unasked."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seedbed.checkpoints.store import CheckpointStore
from seedbed.config import Experiment, load_experiment, parse_experiment
from seedbed.config.load import default_run_directory, dump_experiment
from seedbed.runs.directory import RunDirectory, open_run_directory
from seedbed.runs.history import read_history
from seedbed.runs.layout import run_of_part
from seedbed.runs.resume import result_changes
from seedbed.runs.stored import open_store, read_checkpoint
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.limits import process_state
from seedbed.runtime.locks import Lock, LockHeld
from seedbed.spec import ArraySpec, EnvironmentSpec
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
SPEC = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)


def experiment(*overrides: str) -> Experiment:
    return parse_experiment("name: cartpole\nenvironment: {id: CartPole-v1}", overrides)


def save(directory: RunDirectory, updates: int, of: Experiment) -> None:
    meta = {
        "experiment": dump_experiment(of),
        "spec": SPEC.to_json(),
        "counters": {"updates": updates},
    }
    directory.store.save({"model/w": np.full(3, updates)}, meta, updates)


def begin(path: Path, updates: int = 0, *overrides: str) -> None:
    """A whole first start, as a learner would leave it."""
    with open_run_directory(path, experiment(*overrides)) as directory:
        (directory.path / "progress.csv").write_text("env_frames\n1\n")
        (directory.logs / "learner.log").write_text("x")
        if updates:
            save(directory, updates, experiment(*overrides))


def test_resume_begins_where_there_is_nothing_and_goes_on_where_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs" / "cartpole"
    with open_run_directory(path, experiment()) as directory:
        assert directory.resume_from is None
        assert load_experiment(directory.experiment_yaml) == experiment()
        assert directory.logs.is_dir()
        assert (path / "tensorboard").is_dir()
        save(directory, 7, experiment())
    changed = experiment("stop.env_frames=100")
    with open_run_directory(path, changed) as directory:
        assert directory.resume_from is not None
        assert directory.resume_from.updates == 7
        assert load_experiment(directory.experiment_yaml) == changed
        assert load_experiment(path / "experiment.1.yaml") == experiment()
    said = capsys.readouterr().err
    assert "stop.env_frames: 0 -> 100" in said
    assert "after 7 updates" in said


def test_a_refused_resume_changes_nothing(tmp_path: Path) -> None:
    begin(tmp_path / "run", 7)
    with pytest.raises(SeedbedError, match="lstm_units: 0 -> 8") as caught:
        open_run_directory(tmp_path / "run", experiment("learner.lstm_units=8"))
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert load_experiment(tmp_path / "run" / "experiment.yaml") == experiment()
    open_run_directory(tmp_path / "run", experiment()).close()  # and the lock was given back


def test_fresh_moves_the_old_run_aside_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    for number in (1, 2):
        begin(path, number)
        with open_run_directory(path, experiment(), "fresh") as directory:
            assert directory.resume_from is None
            assert not (directory.path / "progress.csv").exists()
        assert f"moved to {path}.{number}" in capsys.readouterr().err
        assert read_checkpoint(f"{path}.{number}").updates == number
        assert (tmp_path / f"run.{number}" / "logs" / "learner.log").exists()
        open_run_directory(path, experiment()).close()
        shutil.rmtree(path)
    with open_run_directory(path, experiment(), "fresh"):  # nothing there: nothing to move
        assert not (tmp_path / "run.3").exists()


def test_overwrite_deletes_the_runs_own_files_only(tmp_path: Path) -> None:
    path = tmp_path / "run"
    begin(path, 7)
    (path / "notes.txt").write_text("mine")
    (path / "checkpoints" / "paper.pdf").write_text("mine")
    with open_run_directory(path, experiment(), "overwrite") as directory:
        assert directory.resume_from is None
        assert directory.store.newest() is None
    assert not (path / "progress.csv").exists()
    assert not (path / "logs" / "learner.log").exists()
    assert (path / "notes.txt").exists()
    assert (path / "checkpoints" / "paper.pdf").exists()


def test_overwrite_follows_no_links(tmp_path: Path) -> None:
    begin(tmp_path / "run", 7)
    (tmp_path / "run" / "logs" / "learner.log").unlink()
    (tmp_path / "run" / "logs").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "other.log").write_text("mine")
    (tmp_path / "run" / "logs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SeedbedError, match="symbolic link"):
        open_run_directory(tmp_path / "run", experiment(), "overwrite")
    assert (tmp_path / "elsewhere" / "other.log").exists()
    assert read_checkpoint(tmp_path / "run").updates == 7


@pytest.mark.parametrize("restart", ["resume", "fresh", "overwrite"])
def test_a_directory_that_is_no_run_is_refused(tmp_path: Path, restart: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "experiment.yaml").write_text("precious")
    with pytest.raises(SeedbedError, match="no run of Seedbed") as caught:
        open_run_directory(home, experiment(), restart)  # type: ignore[arg-type]
    assert caught.value.code == ExitCode.RUN_DIRECTORY
    assert [(file.name, file.read_text()) for file in home.iterdir()] == [
        ("experiment.yaml", "precious")
    ]
    with pytest.raises(SeedbedError, match="is a file"):
        open_run_directory(home / "experiment.yaml", experiment())


def test_an_empty_volume_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    open_run_directory(tmp_path, experiment()).close()


HOLD = """
import sys
from seedbed.config import parse_experiment
from seedbed.runs.directory import open_run_directory
directory = open_run_directory(sys.argv[1], parse_experiment(sys.argv[2]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_one_learner_at_a_time_and_kill_9_gives_the_lock_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run"), dump_experiment(experiment())],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    try:
        for restart in ("resume", "fresh", "overwrite"):
            with pytest.raises(SeedbedError, match=f"in use by process {holder.pid} on") as caught:
                open_run_directory(tmp_path / "run", experiment(), restart)  # type: ignore[arg-type]
            assert caught.value.code == ExitCode.RUN_DIRECTORY
            assert f"on {socket.gethostname()}: stop it with `kill {holder.pid}`" in str(
                caught.value
            )
        holder.send_signal(signal.SIGSTOP)
        wait_for(lambda: process_state(holder.pid) == "T", "it is stopped")
        with pytest.raises(SeedbedError, match=f"is stopped: .*`kill -CONT {holder.pid}`"):
            open_run_directory(tmp_path / "run", experiment())
        assert not caplog.messages
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=20)
    for taken_over in (True, False):
        open_run_directory(tmp_path / "run", experiment()).close()
        found = f"was locked by process {holder.pid} on" in caplog.text
        assert found == taken_over
        caplog.clear()


def test_a_lock_that_a_process_of_its_holder_keeps_names_the_way_to_that_process(
    tmp_path: Path,
) -> None:
    lock = tmp_path / "lock"
    file = Lock(lock)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for content, words in (
        (f"process {gone.pid} on {socket.gethostname()}", f"process {gone.pid} on .* before it"),
        ("process 1 on elsewhere", "process 1 on elsewhere: stop it there"),
        ("\x1b[2J", "another process: stop it"),
    ):
        lock.write_text(content)
        with pytest.raises(LockHeld, match=words):
            Lock(lock)
    file.release()
    assert lock.read_text() == ""


def test_init_from_counts_only_where_a_run_begins(tmp_path: Path) -> None:
    begin(tmp_path / "first", 7)
    with open_run_directory(
        tmp_path / "second", experiment(), init_from=str(tmp_path / "first")
    ) as directory:
        assert directory.start_from is not None
        assert directory.start_from.updates == 7
        assert directory.resume_from is None
        save(directory, 1, experiment())
    with open_run_directory(
        tmp_path / "second", experiment(), init_from=str(tmp_path / "first")
    ) as directory:
        assert directory.start_from is None
        assert directory.resume_from is not None
        assert directory.resume_from.updates == 1
    file = next((tmp_path / "first" / "checkpoints").iterdir())
    assert read_checkpoint(file).updates == 7
    with pytest.raises(SeedbedError, match="nowhere"):
        open_run_directory(tmp_path / "third", experiment(), init_from=str(tmp_path / "nowhere"))


def test_another_run_to_begin_with_is_refused_once_the_run_has_begun(tmp_path: Path) -> None:
    """Otherwise a loop over initial parameters returns the first run's result each time."""
    for name in ("one", "other"):
        begin(tmp_path / name, updates=3)
    run, one = tmp_path / "run", str(tmp_path / "one")
    with open_run_directory(run, experiment(), init_from=one) as directory:
        save(directory, 5, experiment())
    with open_run_directory(run, experiment(), init_from=one) as directory:
        assert directory.start_from is None
        assert directory.resume_from is not None
    with open_run_directory(run, experiment()):
        pass
    command = ["seedbed", "train", "x", "--change", "c1234567", "--init-from", "other"]
    with pytest.raises(SeedbedError, match=f"began from {one}, and --init-from is other") as caught:
        open_run_directory(run, experiment(), init_from="other", command=command)
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert f"seedbed train x --init-from other --run-dir {run}-2" in str(caught.value)


def test_a_start_that_failed_at_once_leaves_no_run_to_begin_with(tmp_path: Path) -> None:
    begin(tmp_path / "one", updates=3)
    run, one = tmp_path / "run", str(tmp_path / "one")
    with open_run_directory(run, experiment(), init_from=one):
        pass  # no frame
    with open_run_directory(run, experiment()) as directory:
        save(directory, 5, experiment())
    with pytest.raises(SeedbedError, match="began from no other run"):
        open_run_directory(run, experiment(), init_from=one)


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "experiment.yaml").read_text()
    assert old in text
    (run / "experiment.yaml").write_text(text.replace(old, new))


def test_an_edit_of_the_runs_own_file_is_a_change_as_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    begin(run, 3, "learner.optimizer.learning_rate=0.01")
    own = run / "experiment.yaml"
    edit(run, "env_frames: 0", "env_frames: 99")
    with open_run_directory(run, load_experiment(run), set_here=[]) as directory:
        directory.report_resume()
        assert directory.experiment.stop.env_frames == 99
    assert "stop.env_frames: 0 -> 99 since " in capsys.readouterr().err
    before = own.read_text()
    edit(run, "learning_rate: 0.01", "learning_rate: 0.05")
    with pytest.raises(SeedbedError, match=r"learning_rate: 0\.01 -> 0\.05") as caught:
        open_run_directory(run, load_experiment(run), set_here=[])
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert "set back: learner.optimizer.learning_rate=0.01" in str(caught.value)
    # Accepted and recorded, and then no change any more.
    accept = str(caught.value).split()[-1]
    for accepted in (accept, ""):
        with open_run_directory(
            run, load_experiment(run), set_here=[], accepted=accepted
        ) as directory:
            assert directory.experiment.learner.optimizer.learning_rate == 0.05
            changes = [change.key for change in result_changes(directory.changes)]
            save(directory, 4, directory.experiment)
        assert changes == ["learner.optimizer.learning_rate"] * bool(accepted)
    own.write_text(before)


def test_a_start_that_steps_nothing_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    """Such as one whose port is taken: the command that has made the run means it still."""
    run = tmp_path / "run"
    begin(run, 3, "stop.env_frames=1")
    (run / "summary.json").write_text("{}")
    (run / "status.json").write_text('{"counters": {"env_frames": 1}}')
    names = ("experiment.yaml", "history.json", "summary.json", "status.json")
    before = {name: (run / name).read_bytes() for name in names}
    with (  # noqa: PT012
        pytest.raises(SeedbedError, match="the port is taken"),
        open_run_directory(run, experiment("stop.env_frames=9")) as directory,
    ):
        directory.remove_summary()
        (run / "status.json").write_text('{"counters": {"env_frames": 0}}')
        raise SeedbedError(ExitCode.BIND, "the port is taken")
    assert {name: (run / name).read_bytes() for name in names} == before
    assert not (run / "experiment.1.yaml").exists()
    # One that has stepped is a start, whatever ends it.
    with (  # noqa: PT012
        pytest.raises(SeedbedError),
        open_run_directory(run, experiment("stop.env_frames=9")) as directory,
    ):
        (run / "status.json").write_text('{"counters": {"env_frames": 7}}')
        raise SeedbedError(ExitCode.ENVIRONMENT, "it hangs")
    assert len(read_history(run)["starts"]) == 2
    assert "env_frames: 9" in (run / "experiment.yaml").read_text()


def test_a_damaged_history_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    begin(run, updates=3)
    (run / "history.json").write_text("{")
    begin(run)
    assert (run / "history.json.damaged").read_text() == "{"
    assert "history.json cannot be read" in caplog.text
    assert len(read_history(run)["starts"]) == 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("text", ["{", "[]", "null", "", '{"env_frames": 5}'])
def test_a_damaged_summary_is_none(tmp_path: Path, text: str) -> None:
    begin(tmp_path / "run", updates=3)
    (tmp_path / "run" / "summary.json").write_text(text)
    with open_run_directory(tmp_path / "run", experiment(), may_be_finished=True) as directory:
        assert directory.finished is None
        assert directory.read_summary() is None


def test_files_of_a_run_mean_that_run(tmp_path: Path) -> None:
    run = tmp_path / "runs/a"
    begin(run, updates=3)
    begin(run, 0, "stop.env_frames=9")
    assert default_run_directory("cartpole-vtrace", "x") == Path("runs/x")
    for path in (run, run / "experiment.yaml"):
        assert default_run_directory(path, "x") == run
    with pytest.raises(SeedbedError, match=f"an earlier start of the run {run}: name {run}"):
        default_run_directory(run / "experiment.1.yaml", "x")
    # The directory of a learner belongs to the run of all.
    assert run_of_part(run / "learner-1") == run
    assert run_of_part(run) is None
    assert run_of_part(Path("learner-1")) is None


def test_checkpoints_elsewhere_are_found_moved_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    elsewhere = f"learner.checkpoint.directory={tmp_path}/bucket"
    begin(path, 7, elsewhere)
    assert open_store(path).directory == f"{tmp_path}/bucket"
    assert read_checkpoint(path).updates == 7
    # The run directory is lost, as a pod's is: the run still goes on.
    shutil.rmtree(path)
    with open_run_directory(path, experiment(elsewhere)) as directory:
        assert directory.resume_from is not None
    # The key has changed: it goes on from where they were, and writes where they shall be.
    with open_run_directory(path, experiment()) as directory:
        assert directory.resume_from is not None
        assert directory.resume_from.updates == 7
        assert directory.store.directory == str(path / "checkpoints")
    with open_run_directory(path, experiment(elsewhere), "fresh") as directory:
        assert directory.store.newest() is None
    assert CheckpointStore(f"{tmp_path}/bucket/aside-1").read("newest").updates == 7


@pytest.mark.slow
def test_the_socket_path_always_fits(tmp_path: Path) -> None:
    # Long enough for the first socket's path alone.
    edge = "e" * max(1, 104 - len(os.fsencode(tmp_path / "learner.sock")))
    for name in ("short", "long" * 30, edge, "lr%3D0.003"):
        with open_run_directory(tmp_path / name, experiment()) as directory:
            assert "%3D" not in str(directory.socket)  # gRPC would read it as "="
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(directory.socket))
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"{directory.socket}.shm")
            assert directory.socket.parent.stat().st_uid == os.getuid()
        # A killed learner leaves its socket; the next one can bind again.
        with (
            open_run_directory(tmp_path / name, experiment()) as directory,
            socket.socket(socket.AF_UNIX) as listener,
        ):
            listener.bind(str(directory.socket))
        shutil.rmtree(tmp_path / name)
