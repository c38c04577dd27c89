"""Hosts of one learner in the chart: what starts and ends them as one, and what is refused."""

from __future__ import annotations

import argparse
import math
from typing import Any

import kubernetes_validate
import pytest
import yaml

from seedbed.cli import actor as actor_command
from seedbed.cli import cost as cost_command
from seedbed.deploy.plan import objects_of, plan
from seedbed.runtime.exit_codes import FATAL, ExitCode
from tests.support.api_server import api_server
from tests.support.chart import CHART, NO_METER, ROOT, Rendered, merged, refused, render, run

JAX: dict[str, Any] = {"experiment": {"learner": {"backend": "jax"}}}
TWO: dict[str, Any] = merged(JAX, {"learner": {"hosts": 2}})

# The fields that the chart gives, with their types, as the two APIs have them.
JOB_SET = {
    "spec": {
        "suspend": bool,
        "network": {
            "enableDNSHostnames": bool,
            "subdomain": str,
            "publishNotReadyAddresses": bool,
        },
        "failurePolicy": {
            "maxRestarts": int,
            "restartStrategy": ("Recreate", "BlockingRecreate", "InPlaceRestart"),
            "rules": [
                {
                    "name": str,
                    "action": ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
                    "onJobFailureReasons": [("BackoffLimitExceeded", "PodFailurePolicy")],
                }
            ],
        },
        "replicatedJobs": [{"name": str, "replicas": int, "template": {"spec": dict}}],
    }
}


def check(value: Any, wanted: Any, where: str = "") -> None:
    """Whether each field of a value is there in what is wanted, with its type or of its values."""
    if isinstance(wanted, dict):
        assert isinstance(value, dict), where
        for key, item in value.items():
            assert key in wanted, f"{where}.{key}"
            check(item, wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        for item in value:
            check(item, wanted[0], f"{where}[]")
    elif isinstance(wanted, tuple):
        assert value in wanted, where
    else:
        assert type(value) is wanted, f"{where}: {value!r}"


def values_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return found


def job_set(values: dict[str, Any]) -> dict[str, Any]:
    return render(values).one("JobSet", "pong-learner")


def command(rendered: Rendered, name: str, module: Any) -> argparse.Namespace:
    """The arguments of a pod, as its own parser reads them."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    (container,) = rendered.pods()[name]["spec"]["containers"]
    return parser.parse_args(container["args"])


@pytest.mark.parametrize("values", [TWO, values_of("hosts")], ids=["two", "slice"])
def test_a_jobset_is_valid_and_so_is_its_job(values: dict[str, Any]) -> None:
    item = job_set(values)
    check({"spec": item["spec"]}, JOB_SET)
    (job,) = item["spec"]["replicatedJobs"]
    inner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": job["template"]["spec"],
    }
    for version in ("1.33", "1.36"):
        kubernetes_validate.validate(inner, version, strict=True)
    assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_one_lost_host_restarts_all_and_no_restart_is_tried_in_vain() -> None:
    spec = job_set(TWO)["spec"]
    assert spec["failurePolicy"]["maxRestarts"] >= 100_000
    assert spec["failurePolicy"]["restartStrategy"] == "BlockingRecreate"
    (job,) = spec["replicatedJobs"]
    assert job["template"]["spec"]["backoffLimit"] == 0, "the Job starts no host alone"
    (rule,) = job["template"]["spec"]["podFailurePolicy"]["rules"]
    # A device that does not start on this node may on the next.
    assert set(rule["onExitCodes"]["values"]) == FATAL - {ExitCode.BACKEND}


def test_hosts_and_everybody_else_know_their_names() -> None:
    rendered = render(TWO)
    names = ["pong-learner-host-0-0", "pong-learner-host-0-1"]
    full = [f"{name}.pong-learner.rl.svc" for name in names]
    text = rendered.one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    learner = yaml.safe_load(text)["learner"]
    assert learner["hosts"] == 2
    assert learner["coordinator"] == f"{full[0]}:8476"
    actors = command(rendered, "pong-actor", actor_command).learner
    assert actors == ",".join(f"{name}:8470" for name in full)
    meter = command(rendered, "pong-cost", cost_command)
    assert meter.learner == [f"http://{names[0]}.pong-learner:9090/status"], "it counts for all"
    assert meter.hosts == 2
    (container,) = rendered.pods()["pong-learner"]["spec"]["containers"]
    (host,) = (item for item in container["env"] if item["name"] == "SEEDBED_HOST")
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert host["valueFrom"]["fieldRef"]["fieldPath"] == index
    service = rendered.one("Service", "pong-learner")["spec"]
    assert service["publishNotReadyAddresses"] is True, "they meet before they are ready"
    assert job_set(TWO)["spec"]["network"]["subdomain"] == "pong-learner"


FOUR: dict[str, Any] = merged(TWO, {"learner": {"replicas": 2}})


def test_several_learners_of_several_hosts_each_have_a_rank_and_a_coordinator() -> None:
    rendered = render(FOUR)
    owners = ["pong-learner-0", "pong-learner-1"]
    names = [[f"{owner}-host-0-{host}" for host in range(2)] for owner in owners]
    coordinators = [hosts[0] for hosts in names]
    items = rendered.of("JobSet")
    assert [item["metadata"]["name"] for item in items] == owners
    text = rendered.one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    given = yaml.safe_load(text)
    assert given["learner"]["hosts"] == 2
    assert "coordinator" not in given["learner"], "it is of each learner"
    first = [f"{hosts[0]}.pong-learner.rl.svc:8490" for hosts in names]
    assert (given["gossip"]["replicas"], given["gossip"]["addresses"]) == (2, first)
    actors = command(rendered, "pong-actor", actor_command).learner
    flat = [name for hosts in names for name in hosts]
    assert actors == ",".join(f"{name}.pong-learner.rl.svc:8470" for name in flat)
    for rank, (owner, coordinator) in enumerate(zip(owners, coordinators, strict=True)):
        spec = rendered.pods()[owner]["spec"]
        (container,) = spec["containers"]
        (variable,) = (item for item in container["env"] if item["name"] == "SEEDBED_RANK")
        assert variable["value"] == str(rank)
        address = f"{coordinator}.pong-learner.rl.svc:8476"
        arguments = container["args"]
        assert "--rank=$(SEEDBED_RANK)" in arguments
        assert f"--set=learner.coordinator={address}" in arguments
        assert "--run-dir=/runs/pong/learner-$(SEEDBED_RANK)" in arguments
        claim = {"name": "runs", "persistentVolumeClaim": {"claimName": "runs-pong-learner"}}
        assert claim in spec["volumes"]
        assert {"name": "peers", "containerPort": 8490} in container["ports"]
    (claim,) = rendered.of("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert rendered.one("PodDisruptionBudget", "pong-learner")["spec"]["minAvailable"] == 3
    assert not rendered.of("ValidatingAdmissionPolicy"), "there is no StatefulSet to scale"


def test_the_meter_counts_and_ends_all_learners_of_several_hosts() -> None:
    rendered = render(FOUR)
    meter = command(rendered, "pong-cost", cost_command)
    host = "http://pong-learner-{}-host-0-0.pong-learner:9090/status"
    assert meter.learner == [host.format(rank) for rank in range(2)]
    assert (meter.hosts, meter.learners) == (2, 2)
    rules = rendered.one("Role", "pong-cost")["rules"]
    (rule,) = (rule for rule in rules if rule["resources"] == ["jobsets"])
    assert rule["resourceNames"] == [item["metadata"]["name"] for item in rendered.of("JobSet")]
    objects = objects_of(yaml.safe_dump_all(rendered.all))
    lines = [line for line in plan(objects) if "pong-learner" in line]
    assert sum(int(line.split()[0]) for line in lines) == 4
    paused = render(merged(FOUR, NO_METER | {"paused": True})).of("JobSet")
    assert [item["spec"]["suspend"] for item in paused] == [True, True]


def test_hosts_of_several_learners_reach_their_peers() -> None:
    policy = render(FOUR).one("NetworkPolicy", "pong-learner")["spec"]
    for direction in ("ingress", "egress"):
        ports = [port for rule in policy[direction] for port in rule.get("ports", [])]
        assert {"protocol": "TCP", "port": "peers"} in ports
        assert {"protocol": "TCP", "port": 1024, "endPort": 65535} in ports


@pytest.mark.slow
def test_an_upgrade_leaves_a_suspended_learner_beside_one_that_runs() -> None:
    with api_server() as server:
        server.add_group("jobset.x-k8s.io/v1alpha2", ["JobSet"])
        server.upgrade(FOUR)
        server.objects["JobSet", "pong-learner-1"]["spec"]["suspend"] = True
        rendered = server.render(merged(FOUR, {"actor": {"replicas": 7}}))
        assert rendered.one("JobSet", "pong-learner-0")["spec"]["suspend"] is False
        assert rendered.one("JobSet", "pong-learner-1")["spec"]["suspend"] is True
        answer = server.template(merged(FOUR, {"image": {"tag": "new"}}))
        assert "delete jobset pong-learner-0 pong-learner-1 " in answer.stderr


def test_hosts_reach_each_other_and_nobody_else_does() -> None:
    policy = render(TWO).one("NetworkPolicy", "pong-learner")["spec"]
    for direction, side in (("ingress", "from"), ("egress", "to")):
        (rule,) = (r for r in policy[direction] if any("endPort" in port for port in r["ports"]))
        (peer,) = rule[side]
        labels = peer["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == "learner"
        assert labels["app.kubernetes.io/instance"] == "pong"
        assert rule["ports"] == [{"protocol": "TCP", "port": 1024, "endPort": 65535}]


def test_a_slice_is_a_node_pool_of_one_learner() -> None:
    item = job_set(values_of("hosts"))
    annotations = item["metadata"]["annotations"]
    assert annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] == (
        "cloud.google.com/gke-nodepool"
    )
    (job,) = item["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["parallelism"] == job["template"]["spec"]["completions"] == 4
    spec = job["template"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"]["google.com/tpu"] == 4
    assert spec["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "4x4"
    assert (
        "alpha.jobset.sigs.k8s.io/exclusive-topology" not in job_set(TWO)["metadata"]["annotations"]
    )


def test_a_pod_ends_with_its_learner_also_where_actors_are_in_it() -> None:
    spec = render(values_of("hosts")).pods()["pong-learner"]["spec"]
    assert [c["name"] for c in spec["containers"]] == ["learner"]
    (sidecar,) = spec["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("actor", "Always")


def test_a_volume_is_one_that_all_hosts_mount() -> None:
    rendered = render(values_of("hosts-gpu"))
    (claim,) = rendered.of("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["storageClassName"] == "standard-rwx"
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    volumes = rendered.pods()["pong-learner"]["spec"]["volumes"]
    assert {"name": "runs", "persistentVolumeClaim": {"claimName": "runs-pong-learner"}} in volumes
    assert not render().of("PersistentVolumeClaim")


def test_a_drain_takes_one_host_and_a_budget_of_a_job_is_a_number() -> None:
    four = merged(TWO, {"learner": {"hosts": 4}})
    budget = render(four).one("PodDisruptionBudget", "pong-learner")["spec"]
    assert budget["minAvailable"] == 3
    assert "maxUnavailable" not in budget
    none = merged(four, {"learner": {"podDisruptionBudget": {"maxUnavailable": 0}}})
    assert render(none).one("PodDisruptionBudget", "pong-learner")["spec"]["minAvailable"] == 4


def test_the_meter_may_end_the_hosts_and_no_other_workload() -> None:
    rules = render(TWO).one("Role", "pong-cost")["rules"]
    (rule,) = (rule for rule in rules if rule["apiGroups"] == ["jobset.x-k8s.io"])
    assert rule["resources"] == ["jobsets"]
    assert rule["resourceNames"] == ["pong-learner"]
    assert rule["verbs"] == ["get", "patch"]
    assert not [rule for rule in rules if "statefulsets/scale" in rule["resources"]]


def test_the_number_of_hosts_may_be_the_experiments() -> None:
    text = "environment: {id: CartPole-v1}\nlearner: {backend: jax, hosts: 2, coordinator: 'a:1'}"
    rendered = render({"experimentFile": text})
    assert rendered.of("JobSet")
    given = rendered.one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert yaml.safe_load(given)["learner"]["coordinator"].startswith("pong-learner-host-0-0.")
    said = refused({"experimentFile": text, "learner": {"hosts": 4}})
    assert "learner.hosts is 4, and experiment.learner.hosts is 2" in said


def test_paused_hosts_are_suspended() -> None:
    for values, suspended in ((TWO, False), (merged(TWO, {"paused": True}), True)):
        item = job_set(merged(values, NO_METER))
        assert item["spec"]["suspend"] is suspended


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pod": {"queueName": "q"}}, ["queue is q", "actor.pod.queueName"]),
        ({"learner": {"pod": {"extraContainers": [{"name": "x"}]}}}, ['"x"', "initContainers"]),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], words: list[str]) -> None:
    said = refused(merged(TWO, values))
    for word in words:
        assert word in said


@pytest.mark.slow
def test_an_upgrade_leaves_hosts_as_the_meter_has_them_and_says_what_cannot_change() -> None:
    with api_server() as server:
        server.add_group("jobset.x-k8s.io/v1alpha2", ["JobSet"])
        item = server.upgrade(TWO).one("JobSet", "pong-learner")
        assert item["spec"]["suspend"] is False
        server.objects["JobSet", "pong-learner"]["spec"]["suspend"] = True
        budget = merged(TWO, {"actor": {"replicas": 7}})
        assert server.render(budget).one("JobSet", "pong-learner")["spec"]["suspend"] is True
        for values in ({"learner": {"hosts": 4}}, {"image": {"tag": "new"}}):
            answer = server.template(merged(TWO, values))
            assert answer.returncode != 0
            assert "kubectl -n rl delete jobset pong-learner" in answer.stderr
        del server.objects["JobSet", "pong-learner"]
        four = server.render(merged(TWO, {"learner": {"hosts": 4}}))
        assert four.one("JobSet", "pong-learner")["spec"]["suspend"] is False


def test_notes_name_the_hosts() -> None:
    answer = run(
        "install", "pong", str(CHART), "-n", "rl", "--dry-run=client", values=values_of("hosts")
    )
    said = answer.stdout.partition("\nNOTES:\n")[2]
    assert "One learner of 4 hosts, by a JobSet" in said
    assert "4 ct6e-standard-4t, --tpu-topology 4x4" in said
    assert "job-completion-index=0) -- seedbed status" in said
    assert "pong-learner-0" not in said


@pytest.mark.parametrize(
    ("name", "hosts", "dollars"), [("hosts", 4, 43.2), ("hosts-gpu", 2, 176.9)]
)
def test_a_deployment_says_what_all_hosts_cost(name: str, hosts: int, dollars: float) -> None:
    answer = run("template", "pong", str(CHART), values=values_of(name))
    (line,) = (text for text in plan(objects_of(answer.stdout)) if " pong-learner " in text)
    assert line.split()[0] == str(hosts)
    assert float(line.split("$")[1].split()[0]) == pytest.approx(dollars, rel=0.01)


def test_the_documented_shapes_are_those_that_are_taken() -> None:
    template = (CHART / "templates/_accelerators.tpl").read_text()
    text = template.partition('"seedbed.tpus" -}}')[2].partition("{{- end -}}")[0]
    before, _, rest = text.partition('{{- $cubes := "')
    cubes, _, after = rest.partition('" }}')
    tpus = yaml.safe_load(before + after.replace("{{ $cubes }}", cubes))
    taken = {
        (name, topology, tpu["machines"][str(chips)], hosts, chips)
        for name, tpu in tpus.items()
        for topology, shapes in tpu["hosts"].items()
        for hosts, chips in shapes
    }
    documented = set()
    for line in (ROOT / "docs/gke-nodes.md").read_text().splitlines():
        if line.startswith(("| `tpu-", "| `tpu7x")):
            name, topologies, machine, hosts, chips = [
                cell.strip(" `") for cell in line.strip("|").split("|")
            ]
            for topology, count in zip(topologies.split(", "), hosts.split(", "), strict=True):
                documented.add((name, topology, machine, int(count), int(chips)))
    assert documented <= taken
    assert {(t[0], t[2]) for t in documented} == {(t[0], t[2]) for t in taken}
    assert {t[1] for t in taken - documented} == {"4x8x8", "8x8x8"}, "the text below the table"
    for name, topology, _, hosts, chips in taken:
        sides = [int(side) for side in topology.split("x")]
        assert hosts * chips == math.prod(sides), (name, topology)


GPUS = {"learner": {"accelerator": {"type": "gpu", "name": "nvidia-l4", "count": 4}}}


def roles(inference: int, training: int, **learner: Any) -> dict[str, Any]:
    devices = {"devices": {"inference": inference, "training": training}}
    return {"experiment": {"learner": {"backend": "jax", **devices, **learner}}}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (roles(2, 6, batch_size=48), ["8 devices", "accelerator.type is none"]),
        (
            {"experiment": {"learner": {"precision": "tensorfloat32"}}},
            ["tensorfloat32", "NVIDIA GPUs", "bfloat16"],
        ),
    ],
)
def test_devices_that_the_learner_would_refuse_are_refused_before_they_are_rented(
    values: dict[str, Any], words: list[str]
) -> None:
    message = refused(values)
    for word in words:
        assert word in message, message
