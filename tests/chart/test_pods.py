"""Pods: their security, nodes, addresses and certificates, and who may scrape them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import (
    CHART,
    CI_VALUES,
    render,
    values_of,
)


@pytest.mark.parametrize("path", [None, *CI_VALUES], ids=lambda p: p.stem if p else "defaults")
def test_pod_security_restricted(path: Path | None) -> None:
    """The rules of Pod Security's `restricted`, and a root file system that cannot be written."""
    for name, pod in render(values_of(path) if path else None).pods().items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert not spec.get(key)
        kinds = {key for volume in spec["volumes"] for key in volume if key != "name"}
        assert kinds <= {"emptyDir", "configMap", "secret", "csi", "persistentVolumeClaim"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


def test_only_the_cost_meter_has_a_token() -> None:
    with_token = {
        name for name, pod in render().pods().items() if pod["spec"]["automountServiceAccountToken"]
    }
    assert with_token == {"pong-cost"}
    assert not render().of("ClusterRole")
    cluster_wide = render({"cost": {"readNodes": True}})
    (role,) = cluster_wide.of("ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    assert role["metadata"]["name"] == "rl.pong-cost", "two releases may not share it"


def test_two_releases_share_no_name_and_no_pod() -> None:
    one, two = render(), render(release="breakout")
    names = [{(x["kind"], x["metadata"]["name"]) for x in r.all} for r in (one, two)]
    assert not names[0] & names[1]
    for item in two.of("NetworkPolicy"):
        assert "pong" not in yaml.safe_dump(item)


def test_replicas_and_who_owns_them() -> None:
    actor = render({"actor": {"replicas": 0}}).one("Deployment", "pong-actor")
    assert actor["spec"]["replicas"] == 0, "0 is a number of actors"
    assert actor["metadata"]["annotations"] == {"seedbed.dev/replicas": "0"}
    rendered = render({"actor": {"autoscaling": {"type": "keda"}}})
    assert "replicas" not in rendered.one("Deployment", "pong-actor")["spec"]
    (scaler,) = rendered.of("ScaledObject")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "pong-actor"
    assert not render().of("ScaledObject")


def test_accelerators() -> None:
    def learner(values: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = render(values).pods()["pong-learner"]["spec"]
        return found

    none = learner({})
    assert "nodeSelector" not in none
    assert "tolerations" not in none
    gpu = learner({"learner": {"accelerator": {"type": "gpu", "name": "nvidia-l4"}}})
    assert gpu["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert gpu["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert gpu["containers"][0]["resources"]["limits"]["memory"] == "4Gi", "what was asked stays"
    tpu = learner(values_of(CHART / "ci" / "tpu-values.yaml"))
    assert tpu["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "1x1",
    }
    assert tpu["tolerations"] == [
        {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    for part in ("requests", "limits"):
        assert tpu["containers"][0]["resources"][part]["google.com/tpu"] == 1


def test_spot_and_compute_class() -> None:
    classed = render({"actor": {"pod": {"computeClass": "c"}}}).pods()["pong-actor"]["spec"]
    assert classed["nodeSelector"] == {"cloud.google.com/compute-class": "c"}
    pods = render({"actor": {"spot": True}}).pods()
    assert pods["pong-actor"]["spec"]["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert pods["pong-actor"]["spec"]["tolerations"][0]["key"] == "cloud.google.com/gke-spot"
    assert pods["pong-actor"]["spec"]["terminationGracePeriodSeconds"] == 15
    assert "nodeSelector" not in pods["pong-learner"]["spec"]
    shards = render(values_of(CHART / "ci" / "replay-values.yaml")).pods()["pong-replay"]["spec"]
    assert shards["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert shards["tolerations"][0]["key"] == "cloud.google.com/gke-spot"


def test_the_learners_address_is_its_pods_own_name() -> None:
    arguments = render().pods()["pong-actor"]["spec"]["containers"][0]["args"]
    assert "--learner=pong-learner-0.pong-learner.rl.svc:8470" in arguments
    assert render().one("Service", "pong-learner")["spec"]["clusterIP"] == "None"


def test_metrics() -> None:
    annotated = render().pods()["pong-actor"]["metadata"]["annotations"]
    assert annotated["prometheus.io/port"] == "9091"
    silent = render({"metrics": {"type": "none"}})
    assert "prometheus.io/scrape" not in silent.pods()["pong-actor"]["metadata"]["annotations"]
    assert not silent.of("PodMonitor")
    (monitor,) = render(values_of(CHART / "ci" / "pod-monitor-values.yaml")).of("PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "monitoring"
    (monitoring,) = render({"metrics": {"type": "podMonitoring"}}).of("PodMonitoring")
    assert {"from": "app.kubernetes.io/instance", "to": "experiment"} in monitoring["spec"][
        "targetLabels"
    ]["fromPod"]


def test_who_may_scrape() -> None:
    def peers(values: dict[str, Any]) -> list[Any]:
        """Of the actors, whose metrics are all that comes in."""
        policy = render(values).one("NetworkPolicy", "pong-actor")
        return [peer for rule in policy["spec"]["ingress"] or [] for peer in rule["from"]]

    (default,) = peers({})
    assert default["namespaceSelector"]["matchExpressions"][0]["values"][0] == "monitoring"
    everybody = [{"namespaceSelector": {}}]
    assert peers({"networkPolicy": {"scrapers": everybody}}) == everybody
    assert peers({"networkPolicy": {"scrapers": []}}) == []


def test_tls() -> None:
    for name in ("pong-learner", "pong-actor", "pong-test"):
        plain = render().pods()[name]["spec"]["containers"][0]
        assert "--tls=/etc/seedbed-tls" not in plain["args"]
        secret = render({"tls": {"enabled": True}}).pods()[name]["spec"]
        assert "--tls=/etc/seedbed-tls" in secret["containers"][0]["args"]
        (volume,) = (v for v in secret["volumes"] if v["name"] == "tls")
        role = "learner" if name == "pong-learner" else "actor"
        assert volume["secret"]["secretName"] == f"pong-{role}-tls"
    made = render({"tls": {"enabled": True}})
    names = {item["spec"]["secretName"]: item for item in made.of("Certificate")}
    assert names.keys() == {"pong-authority", "pong-learner-tls", "pong-actor-tls"}
    assert "*.pong-learner.rl.svc" in names["pong-learner-tls"]["spec"]["dnsNames"]
    given = render(values_of(CHART / "ci" / "tls-secrets-values.yaml"))
    assert not given.of("Certificate")
    own = render({"tls": {"enabled": True, "issuer": {"name": "x", "kind": "ClusterIssuer"}}})
    assert not own.of("Issuer")
    cas = {"name": "x", "kind": "GoogleCASClusterIssuer", "group": "cas-issuer.jetstack.io"}
    for made in render({"tls": {"enabled": True, "issuer": cas}}).of("Certificate"):
        assert made["spec"]["issuerRef"] == cas
