"""What `make release` writes, without images: its chart and its wheel name where those are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.support.chart import CHART, SET_VALUES, SHARDS, run, values_of
from tests.support.source_imports import ROOT

SOURCE, REGISTRY = "https://code.example.com/seedbed", "reg.example.com/people"


def release(out: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    given = ("--out", str(out), "--source", SOURCE, "--registry", REGISTRY)
    command = [sys.executable, "-m", "tools.release", *given, *options]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_charts_layouts_and_bills_of_materials(tmp_path: Path) -> None:
    assert release(tmp_path, "--no-images").returncode == 0
    for chart in ("seedbed", "seedbed-set", "seedbed-platform"):
        (packed,) = tmp_path.glob(f"charts/{chart}-[0-9]*.tgz")
        with tarfile.open(packed) as archive:
            member = archive.extractfile(f"{chart}/Chart.yaml")
            assert member is not None
            meta = yaml.safe_load(member.read())
            values = archive.extractfile(f"{chart}/values.yaml")
            assert values is not None
            if chart == "seedbed-platform":
                url = yaml.safe_load(values.read())["runbooks"]["url"]
                assert url == f"{SOURCE}/blob/v{meta['version']}/docs/runbooks"
        assert meta["home"] == SOURCE
        assert len(yaml.safe_load(meta["annotations"]["artifacthub.io/changes"])) > 3
        layout = tmp_path / "oci" / f"chart-{chart}"
        (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
        blobs = layout / "blobs" / "sha256"
        manifest = json.loads((blobs / entry["digest"].removeprefix("sha256:")).read_text())
        (layer,) = manifest["layers"]
        stored = blobs / layer["digest"].removeprefix("sha256:")
        assert stored.read_bytes() == packed.read_bytes()
    bill = json.loads((tmp_path / "sbom" / "actor.cdx.json").read_text())
    names = {item["name"] for item in bill["components"]}
    assert {"grpcio", "numpy"} <= names
    assert all(item["hashes"] for item in bill["components"])
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    with zipfile.ZipFile(next(tmp_path.glob("wheel/*.whl"))) as archive:
        archive.extractall(tmp_path / "unpacked")
    (packed,) = tmp_path.glob("charts/seedbed-[0-9]*.tgz")
    for chart in (packed, tmp_path / "unpacked" / "seedbed" / "chart"):
        rendered = run("template", "pong", str(chart), values=SHARDS)
        images = set(re.findall(r"image: \"?([^\s\"]+)", rendered.stdout))
        assert images == {f"{REGISTRY}/seedbed-{x}:{version}" for x in ("actor", "cost", "learner")}
    (packed,) = tmp_path.glob("charts/seedbed-set-[0-9]*.tgz")
    for chart in (packed, tmp_path / "unpacked" / "seedbed" / "set_chart"):
        rendered = run("template", "try", str(chart), values=values_of(SET_VALUES))
        assert f"image: {REGISTRY}/seedbed-cost:{version}" in rendered.stdout


def test_a_tag_of_another_version_is_refused(tmp_path: Path) -> None:
    """Its images would be pushed as what the chart does not name."""
    refused = release(tmp_path, "--no-images", "--tag", "v9.9.9")
    assert refused.returncode == 2
    assert "the tag is v9.9.9" in refused.stderr


@pytest.mark.slow
def test_images_of_every_learner_on_a_base_named_by_its_digest(tmp_path: Path) -> None:
    said = tmp_path / "said"
    program = tmp_path / "buildah"
    program.write_text(f'#!/bin/sh\necho "$*" >> {said}\n[ $1 != inspect ] || echo sha256:abc\n')
    program.chmod(0o755)
    assert release(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}").returncode == 0
    builds = [line for line in said.read_text().splitlines() if line.startswith("bud ")]
    assert all("--build-arg=BASE=docker.io/library/python@sha256:abc" in line for line in builds)
    assert not any("REVISION=unknown" in line or "REVISION= " in line for line in builds)
    # The chart names a learner after its backend and accelerator, and the locks are those.
    locks = {file.stem for file in (ROOT / "requirements").glob("learner-*.lock")}
    for lock in locks:
        name = lock.replace("-tensorflow", "")
        (build,) = [line for line in builds if f"localhost/seedbed-{name}:" in line]
        assert ("BACKEND=jax" in build) == ("jax" in lock)
        for accelerator in ("gpu", "tpu"):
            assert (f"ACCELERATOR={accelerator}" in build) == lock.endswith(accelerator)
    assert len(builds) == len(locks) + 2
