"""The wheel that people install: one package, what it needs, and a run of a shipped experiment."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.support.source_imports import ROOT
from tests.support.users_environment import users_environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist from what git tracks, and the wheel from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    subprocess.run(
        ["git", "-c", "safe.directory=*", "checkout-index", "--all", f"--prefix={tree}/"],
        cwd=ROOT,
        check=True,
    )
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)],
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.slow
def test_the_wheel_has_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packages = {name.partition("/")[0] for name in names}
    assert {name for name in packages if not name.endswith(".dist-info")} == {"seedbed"}
    for needed in (
        "seedbed/py.typed",
        "seedbed/services/learner/learner.py",
        "seedbed/services/cost/prices.yaml",
        "seedbed/evaluation/atari57.csv",
        "seedbed/experiments/cartpole-vtrace.yaml",
        "seedbed/v1/inference_pb2.py",
    ):
        assert names.count(needed) == 1, needed


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        meta = HeaderParser().parsestr(archive.read(name).decode())
    assert meta["Requires-Python"] == "<3.14,>=3.11"
    extras = set(meta.get_all("Provides-Extra") or ())
    assert {"actor", "tensorflow", "jax", "jax-cuda", "jax-tpu", "plots"} <= extras
    assert str(meta.get_payload()).startswith("# Seedbed")


@pytest.mark.slow
def test_an_installed_wheel_trains_a_shipped_experiment_by_name(
    wheel: Path, tmp_path: Path
) -> None:
    """Into an environment of its own, whose dependencies are this one's: there is no network."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
    )
    (site,) = venv.glob("lib/python*/site-packages")
    # A path inside a .pth file is no site folder, so this checkout's own .pth does not count there.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    environment = users_environment()
    environment.pop("PYTHONPATH", None)
    found = subprocess.run(
        [python, "-c", "import seedbed; print(seedbed.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == str(site / "seedbed" / "__init__.py")
    done = subprocess.run(
        [
            venv / "bin" / "seedbed", "train", "cartpole-vtrace",
            "--set", "stop.env_frames=2000", "--set", "evaluation.at_end=false",
        ],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_frames"] >= 2000
    assert (tmp_path / "runs" / "cartpole-vtrace" / "experiment.yaml").is_file()
