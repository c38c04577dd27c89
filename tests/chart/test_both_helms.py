"""Helm 3, Helm 4, kustomize and four versions of Kubernetes: all of the charts' values."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.chart.test_experiment_chart import RELEASES
from tests.support.chart import (
    CHART,
    CI_VALUES,
    ROOT,
    SET_CHART,
    SET_VALUES,
    Rendered,
    helm,
    helm3,
    kubectl,
    render,
    values_of,
)

PLATFORM = ROOT / "helm" / "seedbed-platform"
TABLE = ROOT / "experiments" / "table1"
VERSIONS = ("1.33", "1.34", "1.35", "1.36")
# CRDs, whose schemas are not Kubernetes' own; test_hosts_chart.py has JobSet and LeaderWorkerSet.
FOREIGN = (
    "Certificate", "ClusterQueue", "ClusterRules", "ComputeClass", "Issuer", "JobSet",
    "LeaderWorkerSet", "LocalQueue", "PodMonitor", "PodMonitoring", "PrometheusRule",
    "ResourceFlavor", "ScaledObject",
)  # fmt: skip


def text(name: str) -> str:
    return (ROOT / "experiments" / f"{name}.yaml").read_text()


CASES: dict[str, tuple[Path, dict[str, Any]]] = {
    "defaults": (CHART, {}),
    **{path.stem: (CHART, values_of(path)) for path in CI_VALUES},
    **{
        f"{name}-{number}": (CHART, {"experimentFile": text(name), **values})
        for number, (name, values) in enumerate(RELEASES)
    },
    **{
        f"table1-{path.stem}": (
            CHART, values_of(path) | {"experimentFile": text(f"table1/{path.stem}")}
        )
        for path in sorted((TABLE / "values").glob("*.yaml"))
    },
    "set": (SET_CHART, values_of(SET_VALUES)),
    "platform": (PLATFORM, {}),
    **{
        f"platform-{path.stem}": (PLATFORM, values_of(path))
        for path in sorted((PLATFORM / "ci").glob("*.yaml"))
    },
}  # fmt: skip


def rendered(case: str, binary: str) -> Rendered:
    """What one of the Helms makes of a case."""
    chart, values = CASES[case]
    return render(values, chart=chart, binary=binary)


def test_every_file_is_a_case() -> None:
    assert {path.stem for path in (CHART / "ci").iterdir()} <= CASES.keys()
    assert {path.stem for path in (CHART / "profiles").iterdir()} <= CASES.keys()
    named = {path.stem for path in (ROOT / "experiments").glob("*.yaml")}
    assert named == {name for name, _ in RELEASES}
    assert len(CASES) > 50


def test_the_helms_are_3_and_4() -> None:
    for binary, major in ((helm3(), "v3."), (helm(), "v4.")):
        answer = subprocess.run([binary, "version", "--short"], capture_output=True, text=True)
        assert answer.stdout.startswith(major)


@pytest.mark.slow_after(20)
@pytest.mark.parametrize("case", CASES)
def test_both_helms_make_the_same_objects(case: str) -> None:
    # Rendered reads strictly: a key that is there twice is an error.
    three, four = rendered(case, helm3()).all, rendered(case, helm()).all
    assert four
    assert by_name(three) == by_name(four)


def by_name(items: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    found = {}
    for item in items:
        meta = item["metadata"]
        found[item["kind"], meta.get("namespace", ""), meta["name"]] = item
    assert len(found) == len(items), "an object is there twice"
    return found


CHECKED: set[str] = set()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid_from_1_33_to_1_36(case: str) -> None:
    for item in rendered(case, helm()).all:
        # A schema knows names and types, so that one object of each shape is enough.
        shape = f"{item['kind']} {shape_of(item)}"
        if item["kind"] in FOREIGN or shape in CHECKED:
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(item, version, strict=True)
        CHECKED.add(shape)


def shape_of(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: shape_of(value) for key, value in sorted(node.items())}
    if isinstance(node, list):
        return sorted({str(shape_of(item)) for item in node})
    return type(node).__name__


def test_a_wrong_type_and_an_unknown_field_have_another_shape() -> None:
    good = {"kind": "Service", "spec": {"ports": [{"port": 1}, {"port": 2}]}}
    assert shape_of(good) == shape_of({"kind": "x", "spec": {"ports": [{"port": 3}]}})
    for other in ({"port": "1"}, {"port": 1, "prot": 2}):
        assert shape_of(good) != shape_of({"kind": "x", "spec": {"ports": [{"port": 1}, other]}})


@pytest.mark.parametrize("case", ["defaults", "hatches-values", "hosts-values", "platform"])
def test_kustomize_builds_it(case: str, tmp_path: Path) -> None:
    (tmp_path / "objects.yaml").write_text(rendered(case, helm()).text)
    (tmp_path / "kustomization.yaml").write_text("resources: [objects.yaml]")
    built = subprocess.run([kubectl(), "kustomize", str(tmp_path)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert by_name(Rendered(built.stdout).all)
