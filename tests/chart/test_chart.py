"""The chart, rendered: every object is valid, both sides of each switch, what is refused."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.replay import add_arguments
from seedbed.config import parse_experiment
from seedbed.config.learner import Replay
from seedbed.services.cost.price_table import tables
from tests.support.chart import CHART, CI_VALUES, Rendered, merged, refused, render, run

SHARDS: dict[str, Any] = {
    "experiment": {
        "environment": {"id": "CartPole-v1"},
        "agent": "dqn",
        "learner": {"unroll_length": 1, "replay": {"min_size": 100, "priority_exponent": 0}},
    },
    "replay": {"shards": 2, "sequences": 3_000},
}
TPU = {"type": "tpu", "name": "tpu-v6e-slice", "topology": "1x1"}


def values_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_the_defaults_are_what_the_schema_says() -> None:
    from tools.chart_values import Values

    given = values_of(CHART / "values.yaml")
    wanted = Values().model_dump(by_alias=True, exclude_none=True)
    wanted.pop("global")
    for section in (
        "learner",
        "actor",
        "replay",
    ):  # the same fields, but those that the file leaves out
        wanted[section] = {k: v for k, v in wanted[section].items() if k in given[section]}
        assert given[section].keys() >= {"resources", "spot", "computeClass"}
    wanted["cost"]["prices"] = {}
    assert Values.model_validate(given).model_dump() == Values().model_dump()
    assert given.keys() == wanted.keys()
    assert set(tables()) == {"us-central1-aug-2026", "sep-2019"}


@pytest.mark.parametrize("path", CI_VALUES, ids=lambda path: path.stem)
def test_every_example_is_linted(path: Path) -> None:
    lint = run("lint", "--strict", str(CHART), values=values_of(path))
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_the_experiment_is_named_after_the_release() -> None:
    text = render().one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(text).name == "pong"
    named = {"experiment": {"name": "other", "environment": {"id": "CartPole-v1"}}}
    text = render(named).one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(text).name == "other"


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


def changed_pods(before: Rendered, after: Rendered) -> set[str]:
    a, b = before.pods(), after.pods()
    return {name for name in a.keys() & b.keys() if a[name] != b[name] and "test" not in name}


@pytest.mark.parametrize(
    ("values", "restarts"),
    [
        ({"actor": {"replicas": 7}}, set()),
        ({"metrics": {"type": "annotations", "labels": {"a": "b"}}}, set()),
        ({"networkPolicy": {"enabled": False}}, set()),
        ({"learner": {"podDisruptionBudget": {"enabled": False}}}, set()),
        ({"queueName": "q"}, {"pong-cost"}),
        ({"cost": {"defaultFamily": "e2"}}, {"pong-cost"}),
        # The learner resumes with it; actors go on.
        ({"experiment": {"learner": {"optimizer": {"learning_rate": 1e-4}}}}, {"pong-learner"}),
        ({"experiment": {"actor": {"envs_per_group": 8}}}, {"pong-learner", "pong-actor"}),
        ({"experiment": {"stop": {"dollars": 3}}}, {"pong-learner", "pong-cost"}),
        ({"experiment": {"stop": {"updates": 3}}}, {"pong-learner", "pong-cost"}),
        ({"replay": {"sequences": 5}}, set()),  # without shards
    ],
)
def test_what_an_upgrade_restarts(values: dict[str, Any], restarts: set[str]) -> None:
    assert changed_pods(render(), render(values)) == restarts


@pytest.mark.parametrize(
    ("values", "restarts"),
    [
        ({"queueName": "q"}, {"kept-cost"}),
        ({"metrics": {"labels": {"a": "b"}}}, set()),
        ({"replay": {"podDisruptionBudget": {"enabled": False}}}, set()),
        ({"replay": {"shards": 3}}, {"kept-learner", "kept-cost"}),
        ({"experiment": {"learner": {"replay": {"ratio": 2}}}}, {"kept-learner"}),
        ({"experiment": {"environment": {"id": "Acrobot-v1"}}}, {"kept-learner", "kept-actor"}),
        (
            {"experiment": {"learner": {"replay": {"priority_exponent": 0.5}}}},
            {"kept-learner", "kept-replay"},
        ),
        ({"replay": {"env": [{"name": "A", "value": "b"}]}}, {"kept-replay"}),
        # Each run has a folder of its own there too.
        ({"learner": {"run": "second"}}, {"kept-learner", "kept-replay", "kept-cost"}),
    ],
)
def test_what_an_upgrade_restarts_with_shards(values: dict[str, Any], restarts: set[str]) -> None:
    assert changed_pods(render(SHARDS, "kept"), render(merged(SHARDS, values), "kept")) == restarts


def test_replicas_and_who_owns_them() -> None:
    actor = render({"actor": {"replicas": 0}}).one("Deployment", "pong-actor")
    assert actor["spec"]["replicas"] == 0, "0 is a number of actors"
    assert actor["metadata"]["annotations"] == {"seedbed.dev/replicas": "0"}
    for kind, made in (("hpa", "HorizontalPodAutoscaler"), ("keda", "ScaledObject")):
        rendered = render({"actor": {"autoscaling": {"type": kind}}})
        assert "replicas" not in rendered.one("Deployment", "pong-actor")["spec"]
        (scaler,) = rendered.of(made)
        assert scaler["spec"]["scaleTargetRef"]["name"] == "pong-actor"
    assert not render().of("HorizontalPodAutoscaler")
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
    classed = render({"actor": {"computeClass": "c"}}).pods()["pong-actor"]["spec"]
    assert classed["nodeSelector"] == {"cloud.google.com/compute-class": "c"}
    pods = render({"actor": {"spot": True}}).pods()
    assert pods["pong-actor"]["spec"]["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert pods["pong-actor"]["spec"]["tolerations"][0]["key"] == "cloud.google.com/gke-spot"
    assert pods["pong-actor"]["spec"]["terminationGracePeriodSeconds"] == 15
    assert "nodeSelector" not in pods["pong-learner"]["spec"]
    shards = render(values_of(CHART / "ci" / "replay-values.yaml")).pods()["pong-replay"]["spec"]
    assert shards["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert shards["tolerations"][0]["key"] == "cloud.google.com/gke-spot"


def test_shards_and_what_the_learner_knows_of_them() -> None:
    rendered = render(SHARDS, "kept")
    text = rendered.one("ConfigMap", "kept-experiment")["data"]["experiment.yaml"]
    replay = parse_experiment(text).learner.replay
    assert replay.storage == "remote"
    assert replay.shards == [f"kept-replay-{i}.kept-replay.rl.svc:8480" for i in range(2)]
    assert (replay.capacity, replay.min_size) == (6_000, 100)
    shards = rendered.one("StatefulSet", "kept-replay")["spec"]
    assert shards["replicas"] == 2
    assert shards["podManagementPolicy"] == "Parallel"
    assert set(shards["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}
    (claim,) = shards["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "64Gi"
    container = shards["template"]["spec"]["containers"][0]
    assert container["command"] == ["seedbed", "replay"]
    assert "--sequences=3000" in container["args"]
    assert "--priority-exponent=0" in container["args"], "0 is an exponent"
    assert container["image"] == render().pods()["pong-actor"]["spec"]["containers"][0]["image"]
    service = rendered.one("Service", "kept-replay")["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert rendered.one("PodDisruptionBudget", "kept-replay")["spec"]["maxUnavailable"] == 1


def test_the_arguments_of_a_shard_are_those_of_its_command() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser.add_subparsers().add_parser("replay"))
    for values in (SHARDS, merged(SHARDS, {"tls": {"enabled": True}})):
        (container,) = render(values, "kept").pods()["kept-replay"]["spec"]["containers"]
        args = parser.parse_args([*container["command"][1:], *container["args"]])
        assert args.directory == Path("/replay/kept")
        assert args.priority_exponent == 0
    # Where the experiment says nothing, the chart must know the schema's default.
    r2d2 = values_of(CHART / "ci" / "replay-tls-values.yaml")
    arguments = render(r2d2).pods()["pong-replay"]["spec"]["containers"][0]["args"]
    assert f"--priority-exponent={Replay().priority_exponent}" in arguments


def test_without_shards_nothing_of_them_is_there() -> None:
    assert not [x for x in render().all if "replay" in yaml.safe_dump(x)]


def test_the_meter_may_end_shards_where_there_are_some() -> None:
    for values, scaled in (({}, ["kept-learner"]), (SHARDS, ["kept-learner", "kept-replay"])):
        rendered = render(values, "kept")
        role = rendered.one("Role", "kept-cost")
        (rule,) = (r for r in role["rules"] if r["resources"] == ["statefulsets/scale"])
        assert rule["resourceNames"] == scaled
        assert rule["verbs"] == ["get", "patch"]
        arguments = rendered.pods()["kept-cost"]["spec"]["containers"][0]["args"]
        assert ("--replay=2" in arguments) is bool(values)


def test_the_meter_changes_a_set_that_kueue_admits_itself() -> None:
    """Kueue's webhook sees changes of a StatefulSet, and none of its /scale."""
    for values, queued in (({}, False), ({"learner": {"queueName": "q"}}, True)):
        rendered = render(values, "kept")
        rules = rendered.one("Role", "kept-cost")["rules"]
        patched = [rule["verbs"] for rule in rules if rule["resources"] == ["statefulsets"]]
        assert patched == [["patch"]] * queued
        arguments = rendered.pods()["kept-cost"]["spec"]["containers"][0]["args"]
        assert ("--queued" in arguments) is queued


def test_only_the_learner_reaches_a_shard() -> None:
    rendered = render(SHARDS, "kept")
    policy = rendered.one("NetworkPolicy", "kept-replay")["spec"]
    learner, scrapers = policy["ingress"]
    (peer,) = learner["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "learner"
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "kept"
    assert [port["port"] for port in learner["ports"]] == ["grpc"]
    assert [port["port"] for port in scrapers["ports"]] == ["metrics"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == [], "a shard asks nobody"
    to = rendered.one("NetworkPolicy", "kept-learner")["spec"]["egress"]
    peers = [peer for rule in to for peer in rule["to"] if "podSelector" in peer]
    components = {
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in peers
    }
    assert components == {"cost", "replay"}


def test_shards_with_tls() -> None:
    made = render(merged(SHARDS, {"tls": {"enabled": True}}), "kept")
    names = {item["spec"]["secretName"]: item for item in made.of("Certificate")}
    assert "*.kept-replay.rl.svc" in names["kept-replay-tls"]["spec"]["dnsNames"]
    spec = made.pods()["kept-replay"]["spec"]
    (volume,) = (v for v in spec["volumes"] if v["name"] == "tls")
    assert volume["secret"]["secretName"] == "kept-replay-tls"
    assert "--tls=/etc/seedbed-tls" in spec["containers"][0]["args"]
    secrets = {"learnerSecret": "a", "actorSecret": "b", "replaySecret": "c"}
    given = render(
        merged(SHARDS, {"tls": {"enabled": True, "certManager": False, **secrets}}), "kept"
    ).pods()["kept-replay"]["spec"]
    (volume,) = (v for v in given["volumes"] if v["name"] == "tls")
    assert volume["secret"]["secretName"] == "c"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"experiment": {"agent": "vtrace"}}, ["shards is 2", "agent is vtrace"]),
        ({"experiment": {"agent": "a2c"}}, ["shards is 2", "agent is a2c"]),
        (
            {"experiment": {"learner": {"replay": {"storage": "host"}}}},
            ["shards is 2", "storage is host"],
        ),
        (
            {"experiment": {"learner": {"replay": {"storage": "device"}}}},
            ["shards is 2", "storage is device"],
        ),
        (
            {"experiment": {"learner": {"replay": {"storage": "remote"}}},
             "replay": {"shards": 0}},
            ["storage is remote", "replay.shards is 0"],
        ),
        (
            {"experiment": {"learner": {"replay": {"shards": ["a:1"]}}}},
            ["shards is 2", "names a:1"],
        ),
        (
            {"experiment": {"learner": {"replay": {"min_size": 6_001}}}},
            ["min_size is 6001", "2 shards of replay.sequences 3000 hold 6000"],
        ),
        (
            {"tls": {"enabled": True, "certManager": False, "learnerSecret": "a",
                     "actorSecret": "b"}},
            ["tls.replaySecret"],
        ),
        ({"replay": {"shards": -1}}, ["shards"]),
        ({"replay": {"podLabels": {"app.kubernetes.io/name": "x"}}}, ["replay.podLabels"]),
    ],
)  # fmt: skip
def test_shards_that_do_not_fit_are_refused(values: dict[str, Any], words: list[str]) -> None:
    said = refused(merged(SHARDS, values))
    for word in words:
        assert word in said


def test_shards_of_others() -> None:
    """Addresses that the experiment names, such as another release's."""
    own = merged(SHARDS, {"replay": {"shards": 0}})
    own["experiment"]["learner"]["replay"] |= {"storage": "remote", "shards": ["x:1"]}
    text = render(own).one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(text).learner.replay.shards == ["x:1"]


def test_storage() -> None:
    assert render().one("StatefulSet", "pong-learner")["spec"]["volumeClaimTemplates"]
    bucket = render(values_of(CHART / "ci" / "bucket-values.yaml"))
    template = bucket.one("StatefulSet", "pong-learner")["spec"]
    assert "volumeClaimTemplates" not in template
    assert template["template"]["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    account = bucket.one("ServiceAccount", "pong-learner")
    assert "iam.gke.io/gcp-service-account" in account["metadata"]["annotations"]
    arguments = render({"learner": {"persistence": {"checkpoints": "gs://b/p"}}}).pods()[
        "pong-learner"
    ]["spec"]["containers"][0]["args"]
    assert "--set=learner.checkpoint.directory=gs://b/p" in arguments


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


def test_labels_for_billing_and_queues() -> None:
    rendered = render(values_of(CHART / "ci" / "labels-values.yaml"))
    for item in rendered.all:
        assert item["metadata"]["labels"]["team"] == "rl", item["kind"]
    for kind, name in (("StatefulSet", "pong-learner"), ("Deployment", "pong-actor")):
        labels = rendered.one(kind, name)["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "research"
    for pod in rendered.pods().values():
        assert pod["metadata"]["labels"]["cost-center"] == "42"
    for name in ("pong-learner", "pong-actor", "pong-cost"):
        labels = rendered.pods()[name]["metadata"]["labels"]
        assert "helm.sh/chart" not in labels, "every bump of the chart would restart it"
        assert "app.kubernetes.io/version" not in labels


def test_the_learners_address_is_its_pods_own_name() -> None:
    arguments = render().pods()["pong-actor"]["spec"]["containers"][0]["args"]
    assert "--learner=pong-learner-0.pong-learner.rl.svc:8470" in arguments
    assert render().one("Service", "pong-learner")["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"learner": {"spott": True}}, ["learner", "spott"]),
        ({"experiment": {"learner": {"lstm_unit": 1}}}, ["lstm_unit"]),
        ({"experiment": {"learner": {"network": "impala"}}}, ["network"]),
        ({"actor": {"replicas": -1}}, ["replicas", "0"]),
        ({"learner": {"resources": {"requests": {"cpu": "two"}}}}, ["cpu"]),
        (
            {
                "experiment": {"learner": {"backend": "jax"}},
                "learner": {
                    "accelerator": TPU,
                    "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
                },
            },
            ["nvidia-l4", "no node has both"],
        ),
        ({"learner": {"accelerator": {"type": "tpu"}}}, ["name", "topology", "tpu-v6e-slice"]),
        (
            {"learner": {"accelerator": TPU}},
            ["experiment.learner.backend is tensorflow", "jax"],
        ),
        ({"learner": {"accelerator": {"type": "gpu", "topology": "2x2"}}}, ["type: tpu"]),
        ({"learner": {"accelerator": {"name": "nvidia-l4"}}}, ["type is none", "nvidia-l4"]),
        ({"learner": {"persistence": {"type": "gcsfuse"}}}, ["persistence.bucket"]),
        ({"learner": {"persistence": {"bucket": "b"}}}, ["gcsfuse", "pvc"]),
        (
            {"experiment": {"stop": {"dollars": 5}}, "cost": {"enabled": False}},
            ["stop.dollars is 5", "cost.enabled"],
        ),
        ({"tls": {"enabled": True, "certManager": False}}, ["learnerSecret", "ca.crt"]),
        (
            {"actor": {"autoscaling": {"type": "hpa", "minReplicas": 9, "maxReplicas": 3}}},
            ["9", "3"],
        ),
        ({"metrics": {"type": "statsd"}}, ["metrics", "type"]),
        (
            {
                "experiment": {"learner": {"backend": "jax"}},
                "learner": {"accelerator": {**TPU, "topology": "2x4"}},
            },
            ["2x4 of tpu-v6e-slice does not fit 1 host with 1 chip"],
        ),
        (
            {
                "learner": {
                    "accelerator": {"type": "gpu"},
                    "nodeSelector": {"cloud.google.com/gke-tpu-topology": "1x1"},
                }
            },
            ["no node has both"],
        ),
        (
            {"learner": {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}},
            ["type is none", "idle"],
        ),
        ({"learner": {"persistence": {"checkpoints": "runs"}}}, ["checkpoints"]),
        ({"extraLabels": {"app.kubernetes.io/name": "x"}}, ["extraLabels", "choose another"]),
        ({"actor": None}, ["actor"]),
        (
            {"experiment": {"stop": {"idle_s": 1800}}, "cost": {"enabled": False}},
            ["stop.idle_s is 1800", "cost.enabled is false"],
        ),
        (
            {"cost": {"enabled": False, "lastResort": {"enabled": True}}},
            ["cost.lastResort.enabled", "cost.enabled is false"],
        ),
        (
            {"experiment": {"stop": {"dollars": 5}}, "learner": {"accelerator": {"type": "gpu"}}},
            ["stop.dollars is 5", "learner.accelerator.name is empty"],
        ),
        (
            {"actor": {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}},
            ["actor.extraVolumes", "choose another"],
        ),
        ({"fullnameOverride": "UPPER_case"}, ["UPPER_case", "small letters"]),
        ({"learner": {"image": {"repository": "r.io/y:v1"}}}, ["repository"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_sentence(
    values: dict[str, Any], words: list[str]
) -> None:
    said = refused(values)
    for word in words:
        assert word in said


def test_names_that_cannot_be_are_refused() -> None:
    assert "leave room for 40" in refused({}, "a" * 41)
    assert "has a dot" in refused({}, "a.b")


def test_another_run_on_the_same_volume() -> None:
    values = {"learner": {"run": "second", "initFrom": "pong"}}
    arguments = render(values).pods()["pong-learner"]["spec"]["containers"][0]["args"]
    assert "--run-dir=/runs/second" in arguments
    assert "--init-from=/runs/pong" in arguments


def test_images_by_registry_repository_tag_and_digest() -> None:
    def image(values: dict[str, Any], pod: str) -> str:
        (container,) = render(values).pods()[pod]["spec"]["containers"]
        return str(container["image"])

    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert image({}, "pong-learner") == f"localhost/seedbed-learner:{version}"
    shared = {"image": {"registry": "r.io/p", "tag": "7"}}
    assert image(shared, "pong-cost") == "r.io/p/seedbed-cost:7"
    digest = "sha256:" + "a" * 64
    own = {"actor": {"image": {"registry": "x", "repository": "y", "tag": "1", "digest": digest}}}
    assert image(merged(shared, own), "pong-actor") == f"x/y@{digest}", "a digest wins over a tag"
    assert image(merged(shared, own), "pong-learner") == "r.io/p/seedbed-learner:7"
    assert image({"image": {"registry": ""}}, "pong-actor") == f"seedbed-actor:{version}"
    assert "digest" in refused({"actor": {"image": {"digest": "latest"}}})


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ({"replay": {"persistence": {"size": "1e9"}}}, True),
        ({"replay": {"persistence": {"size": "1.5Gi"}}}, True),
        ({"replay": {"persistence": {"size": "5Gi "}}}, False),  # the API server's own rule
        ({"replay": {"persistence": {"size": "5Qi"}}}, False),
        ({"learner": {"podDisruptionBudget": {"maxUnavailable": "25%"}}}, True),
        ({"learner": {"podDisruptionBudget": {"maxUnavailable": "some"}}}, False),
        ({"metrics": {"type": "podMonitor", "interval": "1m30s"}}, True),
        ({"metrics": {"interval": "often"}}, False),
        ({"networkPolicy": {"apiServer": {"cidr": "172.16.0.2/32", "ports": [443]}}}, True),
        ({"networkPolicy": {"apiServer": {"cidr": "fd00::1/128"}}}, True),
        ({"networkPolicy": {"apiServer": {"cidr": "172.16.0.2"}}}, False),
        ({"networkPolicy": {"apiServer": {"ports": [70_000]}}}, False),
    ],
)
def test_amounts_addresses_and_durations(values: dict[str, Any], fits: bool) -> None:
    if fits:
        render(values)
    else:
        assert next(iter(values)) in refused(values)
