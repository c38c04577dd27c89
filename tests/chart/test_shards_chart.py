"""Replay shards: their pods, what others know of them, and what does not fit them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.replay import add_arguments
from seedbed.config import parse_experiment
from seedbed.config.learner import Replay
from seedbed.numbers import DEFAULT_BOUNDS
from tests.support.chart import (
    CHART,
    SHARDS,
    merged,
    refused,
    render,
    values_of,
)


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
        assert (args.max_abs_reward, args.max_abs_observation) == DEFAULT_BOUNDS
    # Where the experiment says nothing, the chart must know the schema's default.
    r2d2 = values_of(CHART / "ci" / "replay-tls-values.yaml")
    arguments = render(r2d2).pods()["pong-replay"]["spec"]["containers"][0]["args"]
    assert f"--priority-exponent={Replay().priority_exponent}" in arguments
    bounded = {"experiment": {"environment": {"max_abs_reward": 9.5}}}
    (container,) = render(merged(SHARDS, bounded), "kept").pods()["kept-replay"]["spec"][
        "containers"
    ]
    assert "--max-abs-reward=9.5" in container["args"]


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
    for values, queued in (({}, False), ({"learner": {"pod": {"queueName": "q"}}}, True)):
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
    given = render(merged(SHARDS, {"tls": {"enabled": True, **secrets}}), "kept").pods()[
        "kept-replay"
    ]["spec"]
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
            {"tls": {"enabled": True, "learnerSecret": "a",
                     "actorSecret": "b"}},
            ["tls.replaySecret"],
        ),
        ({"replay": {"shards": -1}}, ["shards"]),
        ({"replay": {"pod": {"labels": {"app.kubernetes.io/name": "x"}}}}, ["replay.pod.labels"]),
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
