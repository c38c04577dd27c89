"""The examples for Argo CD and Flux, and what they see of a release that lives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.config import load_experiment, parse_experiment
from tests.chart.test_upgrades import numbers
from tests.support.api_server import api_server
from tests.support.chart import CHART, ROOT, Rendered, merged, render

K8S = ROOT / "k8s"


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((K8S / path).read_text()))


def application() -> dict[str, Any]:
    (found,) = documents("argo/application.yaml")
    spec: dict[str, Any] = found["spec"]
    return spec


def values_of_argo() -> dict[str, Any]:
    """What Argo CD gives to `helm template`."""
    given = application()["source"]["helm"]
    values: dict[str, Any] = given["valuesObject"]
    for item in given["fileParameters"]:
        values[item["name"]] = (CHART / item["path"]).resolve().read_text()
    return values


def values_of_flux() -> dict[str, Any]:
    (release,) = documents("flux/releases/pong.yaml")
    values: dict[str, Any] = release["spec"]["values"]
    return values


def drift(wanted: Any, live: Any, path: str = "") -> list[str]:
    """Where the live object differs from what Git says; what Git does not name is no difference."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return [d for key in wanted for d in drift(wanted[key], live.get(key), f"{path}/{key}")]
    return [] if wanted == live else [path]


def drifts(rendered: Rendered, objects: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    return [
        f"{item['kind']}{path}"
        for item in rendered.all
        for path in drift(item, objects[item["kind"], item["metadata"]["name"]])
    ]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("values", [values_of_argo(), values_of_flux()], ids=["argo", "flux"])
def test_git_says_no_number_and_sees_no_difference(values: dict[str, Any]) -> None:
    """After a scale, the end and a resumption, applied again each time as self-healing does."""
    shards = {
        "experiment": {"agent": "r2d2", "learner": {"lstm_units": 512}},
        "replay": {"shards": 2},
    }
    with api_server() as server:
        for more in ({}, shards):
            server.objects.clear()
            given = merged(values, more)
            server.apply(render(given))
            assert set(numbers(render(given)).values()) == {None}
            for number, state in (
                (50, {}),
                (0, {"finished": "stop.updates: 9 of 9", "dollars": "3"}),
                (50, {}),
                (0, {"paused": "stop.idle_s: 900 of 600", "resumeReplicas": "{}"}),
            ):
                server.scale("Deployment", "pong-actor", number)
                server.scale("StatefulSet", "pong-learner", min(number, 1))
                server.objects["ConfigMap", "pong-state"]["data"] = state
                assert drifts(render(given), server.objects) == []
                server.apply(render(given))
                assert server.objects["Deployment", "pong-actor"]["spec"]["replicas"] == number
            # What a chart's number would do: the learner starts again, for ever.
            assert "StatefulSet/spec/replicas" in drifts(
                render(merged(given, {"replicas": "chart"})), server.objects
            )


def test_the_examples_leave_numbers_alone_twice() -> None:
    """Also in a release whose field Helm or a sync has applied before."""
    spec = application()
    ignored = {item["kind"]: item["jsonPointers"] for item in spec["ignoreDifferences"]}
    assert ignored == {kind: ["/spec/replicas"] for kind in ("Deployment", "StatefulSet")}
    assert "RespectIgnoreDifferences=true" in spec["syncPolicy"]["syncOptions"]
    (release,) = documents("flux/releases/pong.yaml")
    ignored = {
        item["target"]["kind"]: item["paths"]
        for item in release["spec"]["driftDetection"]["ignore"]
    }
    assert ignored == {kind: ["/spec/replicas"] for kind in ("Deployment", "StatefulSet")}
    assert release["spec"]["install"]["disableWait"], "a node may take longer than a timeout"


def test_argo_runs_the_experiment_of_the_repository() -> None:
    text = render(values_of_argo()).one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    source = load_experiment(ROOT / "experiments" / "pong-vtrace.yaml", ["name=pong"])
    assert parse_experiment(text) == source


def test_what_flux_waits_for_is_there() -> None:
    repository, kustomization = documents("flux/releases.yaml")
    spec = kustomization["spec"]
    folder = ROOT / spec["path"]
    assert {path.name for path in folder.iterdir()} == {"pong.yaml"}
    assert spec["sourceRef"]["name"] == repository["metadata"]["name"]
    rendered = render(values_of_flux())
    for check in spec["healthChecks"]:
        if check["kind"] == "HelmRelease":
            (release,) = documents("flux/releases/pong.yaml")
            assert check["name"] == release["metadata"]["name"]
        else:
            rendered.one(check["kind"], check["name"])


def test_the_health_of_an_experiment_is_read_from_what_the_meter_writes() -> None:
    (config,) = documents("argo/health.yaml")
    script = config["data"]["resource.customizations.health.ConfigMap"]
    written = (
        Path(ROOT / "services/cost/brake.py").read_text()
        + Path(ROOT / "services/cost/ledger.py").read_text()
    )
    keys = set(re.findall(r"\bdata\.(\w+)", script))
    assert keys == {"finished", "paused", "dollars"}
    for key in keys:
        assert re.search(rf'"{key}"|\b{key}=', written), key
    # Whose ConfigMap it is, among all of the cluster.
    state = render().one("ConfigMap", "pong-state")
    for label, value in re.findall(r'labels\["([\w./]+)"\] == "(\w+)"', script):
        assert state["metadata"]["labels"][label] == value
    assert state["metadata"]["name"].endswith(re.findall(r'-6\) == "([\w-]+)"', script)[0])
    # Blocks are closed: four are opened, by if and function.
