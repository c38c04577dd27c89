"""The wheel that people install: one package, what it needs, and what it needs not."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest

from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import CHART, SET_CHART, helm
from tests.support.locks import lock
from tests.support.source_imports import ROOT


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
    left_out = ("ci", "README.md", ".helmignore")
    for folder, prefix in ((CHART, "seedbed/chart/"), (SET_CHART, "seedbed/set_chart/")):
        chart = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        shipped = {path for path in chart if path.parts[0] not in left_out}
        assert {Path(x.removeprefix(prefix)) for x in names if x.startswith(prefix)} == shipped


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        meta = HeaderParser().parsestr(archive.read(name).decode())
    assert meta["Requires-Python"] == "<3.14,>=3.11"
    extras = set(meta.get_all("Provides-Extra") or ())
    assert {"actor", "tensorflow", "jax", "jax-cuda", "jax-tpu", "plots"} <= extras
    assert str(meta.get_payload()).startswith("# Seedbed")


Seedbed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def laptop(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Seedbed:
    """Install the wheel, and of the packages here those of the extra `kubernetes` alone."""
    folder = tmp_path_factory.mktemp("laptop")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    for name in lock("cost"):
        found = distribution(name)
        for file in found.files or ():
            if ".." not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(found.locate_file(file))).resolve())
    uv = (str(Path(sys.executable).with_name("uv")), "pip")
    offline = ("--quiet", "--offline", "--no-deps", "--no-index")
    subprocess.run([*uv, "install", "--python", python, *offline, str(wheel)], check=True)
    subprocess.run([*uv, "check", "--quiet", "--python", python], check=True)
    path = os.pathsep.join((str(Path(helm()).parent), os.environ["PATH"]))
    given = {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(folder / "none")}

    def seedbed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(venv / "bin" / "seedbed"), *words]
        return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)

    return seedbed


@pytest.mark.slow
def test_a_laptop_that_only_deploys_needs_one_extra_and_no_checkout(laptop: Seedbed) -> None:
    """Neither Keras nor what writes TensorBoard's files is there; the chart is in the wheel."""
    planned = laptop("deploy", "cartpole-vtrace", "--profile", "gke-autopilot", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "1 x  cartpole-vtrace-learner" in planned.stderr
    assert "costs: $" in planned.stderr
    assert "unknown" not in planned.stderr
    installed = laptop("deploy", "cartpole-vtrace")
    assert installed.returncode == ExitCode.DEPLOY, installed.stderr
    assert "set KUBECONFIG" in installed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["deploy", "fetch", "list", "logs", "plot", "status", "stop", "suite"]
)
def test_commands_of_such_a_laptop_show_their_help(laptop: Seedbed, command: str) -> None:
    shown = laptop(command, "--help")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.slow
def test_such_a_laptop_reads_run_directories(laptop: Seedbed, tmp_path: Path) -> None:
    for command in ("status", "list"):
        answer = laptop(command, str(tmp_path))
        assert answer.returncode == ExitCode.RUN_DIRECTORY, answer.stderr
