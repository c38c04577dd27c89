"""The copy of a run that its end makes: whole, again after a failure, and of one run alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.checkpoints.owner import Owner
from seedbed.runs import upload as module
from seedbed.runs.progress import load_progress
from seedbed.runs.stored import read_checkpoint
from seedbed.runs.upload import Upload, check_uploaded
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

FILES = {
    "experiment.yaml": "seed: 1\n",
    "summary.json": "{}",
    "checkpoints/checkpoint-1.safetensors": "x",
    "logs/learner.log": "a line\n",
    "learner-1/status.json": "{}",
}
OVER = {"stop_reason": "stop.env_frames: 80 of 80"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in (*FILES, "xla-cache/a", "checkpoints/.tmp-a", "seedbed.lock.6"):
        file = tmp_path / "run" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(FILES.get(name, "stays"))
    return tmp_path / "run"


def new(run: Path, to: str | Path, owner: str = "a") -> Upload:
    made = Upload(run, str(to), Owner(owner, owner))
    made.claim()
    return made


def found(folder: Path) -> dict[str, str]:
    files = {str(x.relative_to(folder)): x.read_text() for x in folder.rglob("*") if x.is_file()}
    files.pop("owner.json")
    return files


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_run_is_copied_and_then_what_has_changed(run: Path, tmp_path: Path, scheme: str) -> None:
    to = tmp_path / "bucket/run"
    upload = new(run, f"{scheme}{to}")
    assert upload.send()
    assert found(to) == FILES
    assert not upload.is_done
    first = (to / "experiment.yaml").stat().st_ino
    (run / "summary.json").write_text('{"more": 1}')
    upload.finish()
    assert found(to) == {**FILES, "summary.json": '{"more": 1}'}
    assert (to / "experiment.yaml").stat().st_ino == first, "it was not written again"
    check_uploaded(upload, OVER)
    # A later start finds that it is there; one that goes on forgets it.
    assert new(run, f"{scheme}{to}").is_done
    upload.undo()
    assert not new(run, f"{scheme}{to}").is_done


def test_a_failure_is_tried_again_and_loses_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PAUSES_S", (0.001, 0.001))
    to = tmp_path / "bucket"
    upload = new(run, to)
    (to / "logs").write_text("a file in the way of a folder")
    upload.finish()
    assert caplog.text.count("again after") == 2
    assert f"the run is not uploaded to {to}" in caplog.text
    assert not upload.is_done
    with pytest.raises(SeedbedError, match="over and whole, and not uploaded") as error:
        check_uploaded(upload, OVER)
    assert error.value.code is ExitCode.OUTPUT
    check_uploaded(upload, {"stop_reason": "signal SIGTERM"})

    def mends() -> bool:  # while it waits for another try
        (to / "logs").unlink(missing_ok=True)
        return False

    upload.finish(mends)
    assert found(to) == FILES
    assert upload.is_done


def test_a_signal_ends_the_tries(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    upload = new(run, tmp_path / "bucket")
    (tmp_path / "bucket/logs").write_text("in the way")
    assert not upload.send(lambda: True)
    assert "again after" not in caplog.text


def test_the_folder_of_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    new(run, tmp_path / "bucket")
    with pytest.raises(
        SeedbedError, match=r"run a, and this run is b: choose another learner\.upload"
    ) as error:
        new(run, tmp_path / "bucket", "b")
    assert error.value.code is ExitCode.RUN_DIRECTORY


@pytest.mark.slow
def test_a_run_whose_upload_fails_is_over_and_its_command_uploads_it(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket/logs").touch()  # in the way, until somebody mends it
    run, to = tmp_path / "run", tmp_path / "bucket"
    settings = {
        "stop.env_frames": 800, "learner.upload": to, "learner.batch_size": 4,
        "learner.unroll_length": 10, "evaluation.at_end": "false", "logging.interval_s": 1,
    }  # fmt: skip
    words = [word for item in settings.items() for word in ("--set", "{}={}".format(*item))]
    program = (
        "from seedbed.runs import upload; from seedbed.cli.main import main\n"
        "upload._PAUSES_S = (0.01,)\n"
        "import sys; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "train", "cartpole-vtrace", "--run-dir", str(run)]

    def train() -> tuple[int, str]:
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stderr

    code, said = train()
    assert code == ExitCode.OUTPUT, said
    assert f"the run is not uploaded to {to}" in said
    assert (run / "summary.json").exists(), "nothing of the run is lost"
    (to / "logs").unlink()
    code, said = train()
    assert code == 0, said
    assert "is at its end" in said
    for name in ("summary.json", "status.json", "experiment.yaml"):
        assert (to / name).read_text() == (run / name).read_text()
    assert load_progress(to)["env_frames"][-1] >= 800
    assert read_checkpoint(to).meta["counters"]["env_frames"] >= 800


def test_a_place_within_the_run_is_refused(run: Path) -> None:
    with pytest.raises(SeedbedError, match="name a place outside of it"):
        new(run, run / "copy")
