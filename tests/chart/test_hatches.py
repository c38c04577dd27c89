"""What a platform adds to a release: identities, volumes, containers, labels and names."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.api_server import api_server
from tests.support.chart import CHART, CI_VALUES, Rendered, StrictLoader, refused, render, run

HATCHES = yaml.safe_load((CHART / "ci" / "hatches-values.yaml").read_text())


def pod_of(values: dict[str, Any], name: str) -> dict[str, Any]:
    return render(values).pods()[name]


def test_the_strict_loader_is_strict() -> None:
    with pytest.raises(AssertionError, match="twice"):
        yaml.load("{a: 1, b: {c: 1, c: 2}}", Loader=StrictLoader)


@pytest.mark.parametrize(
    "values",
    [
        {"extraLabels": {"helm.sh/chart": "x", "app.kubernetes.io/part-of": "y"}},
        {"extraLabels": {"team": "a"}, "actor": {"pod": {"labels": {"team": "b"}}}},
        {"actor": {"pod": {"annotations": {"prometheus.io/scrape": "false"}}}},
        {"replay": {"shards": 1, "pod": {"annotations": {"prometheus.io/port": "1"}}},
         "experiment": {"agent": "r2d2", "learner": {"lstm_units": 512}}},
        {"metrics": {"type": "podMonitor", "labels": {"app.kubernetes.io/instance": "x"}}},
        {"metrics": {"type": "podMonitoring", "labels": {"team": "x"}},
         "extraLabels": {"team": "y"}},
        {"learner": {"pod": {"env": [{"name": "HOME", "value": "/runs"}]}}},
        {"actor": {"sidecar": 2, "pod": {"env": [{"name": "HOME", "value": "/runs"}]}}},
        *[yaml.safe_load(path.read_text()) for path in CI_VALUES],
    ],
    ids=lambda values: ",".join(values or {}),
)  # fmt: skip
def test_no_key_and_no_variable_is_there_twice(values: dict[str, Any]) -> None:
    for pod in render(values).pods().values():
        for container in pod["spec"]["containers"]:
            for what in ("env", "volumeMounts", "ports"):
                names = [x.get("mountPath", x["name"]) for x in container.get(what, [])]
                assert len(names) == len(set(names)), (container["name"], what)
        names = [volume["name"] for volume in pod["spec"]["volumes"]]
        assert len(names) == len(set(names))


def test_a_roles_label_or_annotation_wins_over_the_shared_one() -> None:
    pod = pod_of(HATCHES, "team-pong-learner")
    labels = pod["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/part-of"]) == ("rl-learner", "platform")
    assert pod["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    (monitor,) = render(HATCHES).of("PodMonitor")
    assert monitor["metadata"]["labels"]["app.kubernetes.io/instance"] == "team-pong"
    assert monitor["metadata"]["labels"]["release"] == "monitoring"
    chart = render({"extraLabels": {"helm.sh/chart": "x"}}).one("Service", "pong-learner")
    assert chart["metadata"]["labels"]["helm.sh/chart"].startswith("seedbed-")


def test_what_is_added_to_pods() -> None:
    learner = pod_of(HATCHES, "team-pong-learner")["spec"]
    assert (learner["schedulerName"], learner["serviceAccountName"]) == ("other", "trainer")
    assert learner["enableServiceLinks"] is False, "what pod.spec does not name stays"
    (container,) = learner["containers"]
    assert {"name": "HOME", "value": "/runs"} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "wandb"}}]
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    memory = {"medium": "Memory", "sizeLimit": "256Mi"}
    assert {"name": "shm", "emptyDir": memory} in learner["volumes"]
    actor = pod_of(HATCHES, "team-pong-actor")["spec"]
    assert [c["name"] for c in actor["containers"]] == ["actor", "log"]
    assert [c["name"] for c in actor["initContainers"]] == ["wait"]
    assert {"name": "roms", "configMap": {"name": "roms"}} in actor["volumes"]
    assert any(x["mountPath"] == "/roms" for x in actor["containers"][0]["volumeMounts"])
    meter = pod_of(HATCHES, "team-pong-cost")
    assert meter["spec"]["priorityClassName"] == "high"
    assert meter["metadata"]["labels"]["tier"] == "brake"
    assert render(HATCHES).one("ConfigMap", "team-pong-roms")["data"] == {"a": "b"}
    egress = render(HATCHES).one("NetworkPolicy", "team-pong-actor")["spec"]["egress"]
    assert {"ipBlock": {"cidr": "10.0.0.0/8"}} in [peer for rule in egress for peer in rule["to"]]


def test_the_pod_of_a_role_lies_over_that_of_all() -> None:
    """Maps key by key, lists behind, and what has a name once."""
    for name in ("learner", "actor", "cost"):
        pod = pod_of(HATCHES, f"team-pong-{name}")
        assert pod["metadata"]["labels"]["mesh"] == "off"
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
        assert pod["spec"]["tolerations"] == [{"key": "team", "operator": "Exists"}]
        env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
        assert env["HTTPS_PROXY"] == "http://proxy:3128"
        assert env["HOME"] == ("/runs" if name == "learner" else "/cache")
    own: dict[str, Any] = {
        "pod": {"tolerations": [{"key": "a"}], "priorityClassName": "low",
                "serviceAccount": {"annotations": {"a": "b"}}},
        "learner": {"pod": {"tolerations": [{"key": "b"}], "priorityClassName": ""}},
        "actor": {"pod": {"serviceAccount": {"create": False, "name": "mine"}}},
    }  # fmt: skip
    spec = pod_of(own, "pong-learner")["spec"]
    assert [item["key"] for item in spec["tolerations"]] == ["a", "b"]
    assert "priorityClassName" not in spec, "an empty text of a role's own counts"
    assert pod_of(own, "pong-cost")["spec"]["priorityClassName"] == "low"
    accounts = render(own).of("ServiceAccount")
    assert {item["metadata"]["name"] for item in accounts} == {"pong-learner", "pong-cost"}
    assert all(item["metadata"]["annotations"] == {"a": "b"} for item in accounts)
    shared = refused({"pod": {"serviceAccount": {"name": "one"}}})
    assert "pod.serviceAccount.name is one" in shared
    assert "waits in no queue" in refused({"cost": {"pod": {"queueName": "q"}}})
    assert "podSpec" in refused({"learner": {"pod": {"podSpec": {}}}}), "its keys have types"


def test_pods_that_end_have_what_a_mesh_must_read() -> None:
    """A proxy beside them would never end."""
    job = render(HATCHES).one("CronJob", "team-pong-last-resort")["spec"]["jobTemplate"]["spec"]
    for pod in (job["template"], pod_of(HATCHES, "team-pong-test")):
        assert pod["metadata"]["labels"]["mesh"] == "off"
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    noisy = {"pod": {"extraContainers": [{"name": "log", "image": "busybox"}]}}
    job = render(noisy).one("CronJob", "pong-last-resort")["spec"]["jobTemplate"]["spec"]
    assert [item["name"] for item in job["template"]["spec"]["containers"]] == ["last-resort"]


def test_service_accounts() -> None:
    accounts = {item["metadata"]["name"] for item in render(HATCHES).of("ServiceAccount")}
    assert "trainer" not in accounts
    assert "team-pong-actor" in accounts
    own = {"name": "brake", "annotations": {"a": "b"}}
    rendered = render({"cost": {"readNodes": True, "pod": {"serviceAccount": own}}})
    assert rendered.one("ServiceAccount", "brake")["metadata"]["annotations"] == {"a": "b"}
    for kind, name in (("RoleBinding", "pong-cost"), ("ClusterRoleBinding", "rl.pong-cost")):
        assert rendered.one(kind, name)["subjects"][0]["name"] == "brake"
    said = refused({"actor": {"pod": {"serviceAccount": {"create": False}}}})
    assert "actor.pod.serviceAccount.name must say which one" in said


def test_names_of_ones_own() -> None:
    names = {item["metadata"]["name"] for item in render(HATCHES).all}
    assert all("team-pong" in name for name in names)
    for pod in render(HATCHES).pods().values():
        assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == "team-pong"
    (meter,) = pod_of(HATCHES, "team-pong-cost")["spec"]["containers"]
    assert "--release=team-pong" in meter["args"], "by which it finds pods, state and workloads"
    assert "leave room for 35" in refused({"fullnameOverride": "a" * 36})


@pytest.mark.slow
def test_names_that_would_leave_volumes_behind() -> None:
    with api_server() as server:
        server.upgrade({})
        for item in server.objects.values():
            owner = {"meta.helm.sh/release-name": "pong"}
            item["metadata"].setdefault("annotations", {}).update(owner)
        server.render({})
        with pytest.raises(AssertionError, match=r"is called pong-learner.*makes it a-learner"):
            server.render({"fullnameOverride": "a"})


def test_a_pod_spec_does_not_take_the_charts_lists() -> None:
    for key, instead in (("containers", "extraContainers"), ("volumes", "extraVolumes")):
        said = refused({"actor": {"pod": {"spec": {key: []}}}})
        assert f"actor.pod.spec.{key}" in said
        assert f"actor.pod.{instead}" in said


def test_the_same_from_both_renderings() -> None:
    one, two = (run("template", "p", str(CHART), values=HATCHES).stdout for _ in range(2))
    assert one == two
    assert Rendered(one).all


def test_no_pod_fills_the_disk_of_its_node() -> None:
    own = {"actor": {"resources": {"requests": {"ephemeral-storage": "5Gi"}}}}
    for name, pod in render(own).pods().items():
        (tmp,) = (v for v in pod["spec"]["volumes"] if v["name"] == "tmp")
        wanted = "5Gi" if name in ("pong-actor", "pong-test") else "2Gi"
        assert tmp["emptyDir"] == {"sizeLimit": wanted}
