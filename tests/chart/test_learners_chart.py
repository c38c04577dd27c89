"""Several learners in the chart: ranks, peers, who reaches whom, what is refused."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import yaml

from seedbed.cli import actor as actor_command
from seedbed.cli import cost as cost_command
from seedbed.config import parse_experiment
from tests.support.chart import CHART, Rendered, merged, refused, render

THREE: dict[str, Any] = {"learner": {"replicas": 3}}


def values_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return found


def learner_of(rendered: Rendered) -> dict[str, Any]:
    (container,) = rendered.pods()["pong-learner"]["spec"]["containers"]
    return dict(container)


def names(port: int, count: int = 3) -> list[str]:
    return [f"pong-learner-{rank}.pong-learner.rl.svc:{port}" for rank in range(count)]


def test_what_learners_know_of_each_other() -> None:
    values = merged(THREE, {"experiment": {"gossip": {"graphs": ["complete"]}}})
    text = render(values).one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    gossip = parse_experiment(text).gossip
    assert (gossip.replicas, gossip.topology) == (3, "gossip")
    assert gossip.addresses == names(8490)
    assert gossip.graphs == ["complete"], "what the experiment says stays"
    both = merged(THREE, {"learner": {"topology": "allreduce"}})
    text = render(both).one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(text).gossip.topology == "allreduce"
    alone = render().one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert "gossip" not in alone


def test_ranks_volumes_and_names() -> None:
    rendered = render(THREE)
    spec = rendered.one("StatefulSet", "pong-learner")["spec"]
    assert spec["replicas"] == 3
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "runs"
    container = learner_of(rendered)
    assert "--rank=$(SEEDBED_RANK)" in container["args"]
    assert "--run-dir=/runs/pong" in container["args"], "each has a volume of its own"
    (rank,) = (item for item in container["env"] if item["name"] == "SEEDBED_RANK")
    assert rank["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.labels['apps.kubernetes.io/pod-index']"
    )
    assert {"name": "peers", "containerPort": 8490} in container["ports"]
    # Pods have names in this Service only: it is the StatefulSet's own.
    service = rendered.one("Service", spec["serviceName"])["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert {port["port"] for port in service["ports"]} == {8470, 8490, 9090}
    assert rendered.one("PodDisruptionBudget", "pong-learner")["spec"]["maxUnavailable"] == 1


def test_learners_that_share_a_bucket_have_folders_of_their_own() -> None:
    arguments = learner_of(render(values_of("allreduce")))["args"]
    assert "--run-dir=/runs/pong/learner-$(SEEDBED_RANK)" in arguments
    bucket = {
        "learner": {"persistence": {"checkpoints": "gs://b/p"}, "run": "two", "initFrom": "one"}
    }
    arguments = learner_of(render(merged(THREE, bucket)))["args"]
    own = "gs://b/p/rl/pong/two/learner-$(SEEDBED_RANK)"
    assert f"--set=learner.checkpoint.directory={own}" in arguments
    assert not [word for word in arguments if word.startswith("--adopt")], "a new run is empty"
    assert {"--run-dir=/runs/two", "--init-from=/runs/one"} <= set(arguments)
    shared = merged(values_of("allreduce"), {"learner": {"initFrom": "one"}})
    assert "--init-from=/runs/one/learner-$(SEEDBED_RANK)" in learner_of(render(shared))["args"]


def test_an_upload_has_a_folder_of_the_run_and_a_way_to_the_bucket() -> None:
    upload = {"experiment": {"learner": {"upload": "gs://b/p/"}}}
    own = "--set=learner.upload=gs://b/p/rl/pong/pong"
    assert own in learner_of(render(upload))["args"]
    learners = learner_of(render(merged(THREE, upload)))["args"]
    assert f"{own}/learner-$(SEEDBED_RANK)" in learners
    egress = render(upload).one("NetworkPolicy", "pong-learner")["spec"]["egress"]
    assert any(rule["ports"] == [{"protocol": "TCP", "port": 443}] for rule in egress)
    assert 'learner.upload "/elsewhere" is not in the learner\'s pod' in refused(
        {"experiment": {"learner": {"upload": "/elsewhere"}}}
    )


def test_everybody_knows_all_learners() -> None:
    rendered = render(THREE)
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    actor_command.add_arguments(commands.add_parser("actor"))
    cost_command.add_arguments(commands.add_parser("cost"))
    (actor,) = rendered.pods()["pong-actor"]["spec"]["containers"]
    assert parser.parse_args(["actor", *actor["args"]]).learner == ",".join(names(8470))
    (cost,) = rendered.pods()["pong-cost"]["spec"]["containers"]
    assert parser.parse_args(["cost", *cost["args"]]).learner == [
        f"http://pong-learner-{rank}.pong-learner:9090/status" for rank in range(3)
    ]
    test = rendered.pods()["pong-test"]["spec"]["containers"]
    assert [f"--learner={name}" for name in names(8470)] == [c["args"][1] for c in test]
    assert len({c["name"] for c in test}) == 3
    (scaler,) = render(values_of("allreduce")).of("ScaledObject")
    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    assert query.count('pod=~"pong-learner-[0-9]+"') == 2


def test_only_learners_of_the_release_reach_their_peers_port() -> None:
    policy = render(THREE).one("NetworkPolicy", "pong-learner")["spec"]
    for direction, side in (("ingress", "from"), ("egress", "to")):
        (rule,) = (
            rule
            for rule in policy[direction]
            if {"protocol": "TCP", "port": "peers"} in rule["ports"]
        )
        (peer,) = rule[side]
        labels = peer["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == "learner"
        assert labels["app.kubernetes.io/instance"] == "pong"
        assert len(rule["ports"]) == 1


def test_their_certificate_is_for_all_of_their_names() -> None:
    rendered = render(values_of("gossip"))
    text = rendered.one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    certificate = rendered.one("Certificate", "pong-learner")["spec"]
    assert set(certificate["usages"]) == {"server auth", "client auth"}
    addresses = parse_experiment(text).gossip.addresses
    assert len(addresses) == 4
    for address in addresses:
        host = address.partition(":")[0]
        assert f"*.{host.partition('.')[2]}" in certificate["dnsNames"]


def test_kubectl_scale_is_refused_but_to_nothing_and_all() -> None:
    rendered = render(THREE)
    (policy,) = rendered.of("ValidatingAdmissionPolicy")
    assert policy["metadata"]["name"] == "rl.pong-learner", "two releases may not share it"
    where = policy["spec"]["matchConstraints"]
    assert where["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "rl"}
    (rule,) = where["resourceRules"]
    assert (rule["resources"], rule["resourceNames"]) == (
        ["statefulsets/scale"], ["pong-learner"],
    )  # fmt: skip
    (validation,) = policy["spec"]["validations"]
    assert validation["expression"].endswith("in [0, 3]")
    (binding,) = rendered.of("ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": "rl.pong-learner", "validationActions": ["Deny"]}
    for values in ({}, merged(THREE, {"learner": {"scaleGuard": False}})):
        assert not [x for x in render(values).all if "Admission" in x["kind"]]


@pytest.mark.parametrize(
    ("values", "restarts"),
    [
        ({"learner": {"replicas": 4}}, {"pong-learner", "pong-actor", "pong-cost"}),
        ({"learner": {"topology": "allreduce"}}, {"pong-learner"}),
        ({"learner": {"scaleGuard": False}}, set()),
        ({"experiment": {"gossip": {"staleness": 4}}}, {"pong-learner"}),
    ],
)
def test_what_an_upgrade_restarts(values: dict[str, Any], restarts: set[str]) -> None:
    a, b = render(THREE).pods(), render(merged(THREE, values)).pods()
    assert {name for name in a if a[name] != b[name]} - {"pong-test"} == restarts


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"learner": {"topology": "star"}}, ["topology"]),
        (
            {"experiment": {"gossip": {"replicas": 4}}},
            ["learner.replicas is 3", "experiment.gossip.replicas is 4", "learner.replicas: 4"],
        ),
        (
            {"learner": {"replicas": 1}, "experiment": {"gossip": {"replicas": 2}}},
            ["learner.replicas is 1", "experiment.gossip.replicas is 2"],
        ),
        (
            {"experiment": {"gossip": {"topology": "allreduce"}}},
            ["learner.topology is gossip", "experiment.gossip.topology is allreduce"],
        ),
        (
            {"experiment": {"gossip": {"addresses": ["a:1", "b:2"]}}},
            ["names 2 addresses", "learner.replicas is 3"],
        ),
        (
            {"experiment": {"agent": "dqn"}, "replay": {"shards": 2}},
            ["replay.shards is 2", "learner.replicas is 3"],
        ),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], words: list[str]) -> None:
    said = refused(merged(THREE, values))
    for word in words:
        assert word in said


def test_the_same_numbers_in_both_places_are_no_contradiction() -> None:
    same = {"experiment": {"gossip": {"replicas": 3, "topology": "gossip"}}}
    assert render(merged(THREE, same)).one("StatefulSet", "pong-learner")["spec"]["replicas"] == 3
