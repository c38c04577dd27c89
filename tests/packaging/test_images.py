"""The Dockerfiles: what the stage that is shipped inherits."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.source_imports import ROOT

IMAGES = {
    ("Dockerfile.learner", "learner"): "the learner",
    ("Dockerfile.actor", "actor"): "actors",
    ("Dockerfile.actor", "cost"): "the cost meter",
    ("Dockerfile.actor", "football"): "actors with Google Research Football",
    ("Dockerfile.actor", "vizdoom"): "actors with ViZDoom",
    ("Dockerfile.actor", "lab"): "actors with DeepMind Lab",
}


def stages(name: str, **given: str) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Base and instructions of each stage, with the arguments of the build filled in."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    known: dict[str, str] = {}
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    lines: list[tuple[str, str]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, rest = line.split(maxsplit=1)
        for key, value in known.items():
            rest = rest.replace(f"${{{key}}}", value)
        if word == "ARG" and not found:
            key, _, value = rest.partition("=")
            known[key] = given.get(key, value)
        elif word == "FROM":
            base, _, stage = rest.partition(" AS ")
            lines = []
            found[stage] = (base, lines)
        else:
            lines.append((word, rest))
    return found


def inherited(name: str, stage: str, word: str, **given: str) -> dict[str, str]:
    """Pairs of all `word` lines from the base to the stage."""
    known = stages(name, **given)
    pairs: dict[str, str] = {}
    while stage in known:
        stage, lines = known[stage]
        for found, rest in lines:
            if found == word:
                pairs = dict(part.split("=", 1) for part in shlex.split(rest)) | pairs
    return pairs | {"from": stage}


def test_the_gpu_image_finds_the_driver() -> None:
    """GKE mounts the host's driver there; no base image of NVIDIA's says so."""
    gpu = inherited("Dockerfile.learner", "learner", "ENV")
    assert gpu["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert gpu["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert gpu["PATH"].startswith("/venv/bin:")


@pytest.mark.parametrize(("name", "stage"), IMAGES, ids=lambda x: str(x))
def test_every_image_says_what_it_is_and_what_it_is_made_of(name: str, stage: str) -> None:
    digest = "sha256:" + "a" * 64
    known = stages(name, BASE=f"python:3.11-slim@{digest}")
    named = stage in ("cost", "football", "vizdoom", "lab")
    assert named or next(reversed(known)) == stage, "what is built without --target"
    labels = inherited(name, stage, "LABEL", BASE=f"python:3.11-slim@{digest}")
    assert labels.pop("from") == f"python:3.11-slim@{digest}", "no stage names a base of its own"
    wanted = {"title", "description", "source", "licenses", "version", "revision", "base.name"}
    assert labels.keys() == {f"org.opencontainers.image.{key}" for key in wanted}
    assert labels["org.opencontainers.image.base.name"].endswith(digest)
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    bases = {base for base, _ in known.values()}
    assert bases - known.keys() == {f"python:3.11-slim@{digest}"}


def test_ci_builds_on_a_tag() -> None:
    for name in ("Dockerfile.learner", "Dockerfile.actor"):
        assert re.search(r"^ARG BASE=python:3\.11-slim$", (ROOT / name).read_text(), re.MULTILINE)
