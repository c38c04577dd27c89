"""`learner.backend`: the default is the one that is installed, and a run keeps its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.config import learner, load_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.exit_codes import ExitCode
from tests.support.source_imports import ROOT


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make `folder` the only one with packages, which are empty ones of these names."""
    for name in ("tensorflow", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (folder / name).mkdir(parents=True)  # a folder alone is no package
    for name in names:
        (folder / name / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(folder)])


@pytest.mark.parametrize(
    ("installed", "default"),
    [
        (("tensorflow", "jax"), "tensorflow"),
        (("tensorflow",), "tensorflow"),
        (("jax",), "jax"),
        ((), "tensorflow"),
    ],
)
def test_the_default_is_what_is_installed(
    installed: tuple[str, ...], default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, *installed)
    experiment = load_experiment("cartpole-vtrace")
    assert experiment.learner.backend == default
    assert f"backend: {default}\n" in dump_experiment(experiment)
    named = load_experiment("cartpole-vtrace", ["learner.backend=jax"])
    assert named.learner.backend == "jax"


def test_a_run_keeps_the_backend_that_it_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(learner, "installed_backends", lambda: ["jax"])
    with open_run_directory(run, load_experiment("cartpole-vtrace")) as directory:
        (directory.path / "summary.json").write_text('{"env_frames": 1}')
    monkeypatch.setattr(learner, "installed_backends", lambda: ["tensorflow", "jax"])
    with open_run_directory(run, load_experiment("cartpole-vtrace")) as directory:
        assert directory.experiment.learner.backend == "jax"
    assert "resume: learner.backend stays 'jax'" in capsys.readouterr().err
    other = load_experiment("cartpole-vtrace", ["learner.backend=tensorflow"])
    with open_run_directory(run, other) as directory:
        assert directory.experiment.learner.backend == "tensorflow"


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ((), "no backend is installed here: "),
        (("jax",), "'tensorflow' is not installed here, and 'jax' is: "),
        (("tensorflow",), "'tensorflow' does not start; reinstall it: "),
    ],
)
def test_a_missing_backend_is_refused_with_the_way_to_one(
    installed: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, *installed)
    code = (
        "import sys; from seedbed import backends\n"
        "from seedbed.runtime.exit_codes import SeedbedError\n"
        "sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + sys.argv[1:]\n"
        "try: backends.use('tensorflow')\n"
        "except SeedbedError as error: print(int(error.code), error)"
    )
    about = tmp_path / "seedbed-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: seedbed\nVersion: 1.0\n")
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{int(ExitCode.BACKEND)} ")
    assert words in done.stdout
    assert "[tensorflow]" in done.stdout
    assert ("learner.backend=jax" in done.stdout) == (installed == ("jax",))
