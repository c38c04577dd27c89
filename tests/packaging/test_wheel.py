"""The wheel that people install: one package, and what it needs. `make test-pythons` runs it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        meta = HeaderParser().parsestr(archive.read(name).decode())
    assert meta["Requires-Python"] == "<3.14,>=3.11"
    extras = set(meta.get_all("Provides-Extra") or ())
    assert {"actor", "tensorflow", "jax", "jax-cuda", "jax-tpu", "plots"} <= extras
    assert str(meta.get_payload()).startswith("# Seedbed")
