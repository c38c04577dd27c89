"""Rendering the chart with a real Helm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "seedbed"
SET_CHART = ROOT / "helm" / "seedbed-set"
SET_VALUES = SET_CHART / "ci" / "objects-values.yaml"
CI_VALUES = sorted((CHART / "ci").glob("*-values.yaml")) + sorted((CHART / "profiles").glob("*"))
# Without a meter a person makes the tokens.
NO_METER: dict[str, Any] = {"cost": {"enabled": False}, "auth": {"existingSecret": "tokens"}}
SHARDS: dict[str, Any] = {
    "experiment": {
        "environment": {"id": "CartPole-v1"},
        "agent": "dqn",
        "learner": {"unroll_length": 1, "replay": {"min_size": 100, "priority_exponent": 0}},
    },
    "replay": {"shards": 2, "sequences": 3_000},
}


def helm() -> str:
    """The machine's own, or the one that `make setup` installs."""
    return os.environ.get("HELM") or _tool("helm")


def helm3() -> str:
    """Helm 3, likewise."""
    return _tool("helm3")


def kubectl() -> str:
    """kubectl, likewise."""
    return _tool("kubectl")


def _tool(name: str) -> str:
    ours = ROOT / ".venv" / "kube" / name
    found = shutil.which(name)
    assert found or ours.exists(), f"no {name}: run tools/kube_tools.sh"
    return found or str(ours)


def run(*arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """A helm command, with values on standard input."""
    more = ["-f", "-"] if values is not None else []
    return subprocess.run(
        [helm(), *arguments, *more],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
    )


class StrictLoader(yaml.CSafeLoader):
    """YAML as Flux and kustomize read it: a key that is there twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a mapping with a key twice."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{sorted(twice)} twice{node.start_mark}"
        return super().construct_mapping(node, deep=deep)


class Rendered:
    """The objects of a release."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = yaml.load_all(text, Loader=StrictLoader)
        self.all: list[dict[str, Any]] = [x for x in found if x]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [item for item in self.all if item["kind"] == kind]

    def one(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = (x for x in self.of(kind) if x["metadata"]["name"] == name)
        return found

    def pods(self) -> dict[str, dict[str, Any]]:
        """Templates by their owner, with metadata and spec; the test's pod too."""
        found = {
            item["metadata"]["name"]: item["spec"]["template"]
            for kind in ("StatefulSet", "Deployment")
            for item in self.of(kind)
        }
        for item in self.of("JobSet"):
            (job,) = item["spec"]["replicatedJobs"]
            found[item["metadata"]["name"]] = job["template"]["spec"]["template"]
        return found | {item["metadata"]["name"]: item for item in self.of("Pod")}


def values_of(path: Path) -> dict[str, Any]:
    """The values of a file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def render(
    values: dict[str, Any] | None = None,
    release: str = "pong",
    chart: Path = CHART,
    binary: str = "",
) -> Rendered:
    """As `helm template`, with `values` over the defaults; rendered once, so change nothing."""
    return _render(json.dumps(values or {}, sort_keys=True), release, chart, binary or helm())


@cache
def _render(values: str, release: str, chart: Path, binary: str) -> Rendered:
    # What a Helm takes for the cluster's version where there is none is its own.
    options = ("--namespace=rl", "--kube-version=1.36", "-f", "-")
    answer = subprocess.run(
        [binary, "template", release, str(chart), *options],
        input=values,
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    return Rendered(answer.stdout)


def refused(values: dict[str, Any], release: str = "pong") -> str:
    """What Helm says of values that do not fit."""
    answer = run("template", release, str(CHART), values=values)
    assert answer.returncode != 0, "it was rendered"
    return answer.stderr


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`more` over `base`, section by section."""
    out = deepcopy(base)
    for key, value in more.items():
        old = out.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        out[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return out
