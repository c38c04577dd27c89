"""The rendered network policies against what pods must reach: resolvers, buckets, each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, merged, render
from tests.support.network_policies import Place, allows

COREDNS = Place("10.4.0.9", {"k8s-app": "kube-dns"}, "kube-system")
NODE = Place()  # what GKE's Dataplane V2 makes of the metadata server
METADATA = Place("169.254.169.254")
STORAGE = Place("142.250.1.95")  # storage.googleapis.com
# What /etc/resolv.conf may name.
RESOLVERS = {
    "pods of CoreDNS or kube-dns": COREDNS,
    "NodeLocal DNSCache": Place("169.254.20.10"),
    "Cloud DNS": METADATA,
    "Cloud DNS, IPv6": Place("fd20:ce::254"),
    "a resolver of the company": Place("10.0.0.2"),
    "kube-dns on the node, GKE's Services": Place("34.118.224.10"),
    "kube-dns on the node, IPv6": Place("fd12::a"),
}
IPV6 = {"networkPolicy": {"ipv6": True}}
ROLES = ("learner", "actor", "cost", "test")
BUCKETS: dict[str, dict[str, Any]] = {
    "gcsfuse": {"learner": {"persistence": {"type": "gcsfuse", "bucket": "b"}}},
    "checkpoints": {"learner": {"persistence": {"checkpoints": "gs://b/p"}}},
    "experiment": {"experiment": {"learner": {"checkpoint": {"directory": "s3://b/p"}}}},
}


def pod(role: str, ports: dict[str, int] | None = None) -> Place:
    labels = {
        "app.kubernetes.io/name": "seedbed",
        "app.kubernetes.io/instance": "pong",
        "app.kubernetes.io/component": role,
    }
    return Place("10.4.1.7", labels, "rl", ports or {})


def reaches(values: dict[str, Any], role: str, to: Place, port: int, protocol: str = "TCP") -> bool:
    return allows(render(values).of("NetworkPolicy"), pod(role), "egress", to, port, protocol)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", RESOLVERS)
def test_every_pod_resolves_names(name: str, role: str) -> None:
    resolver = RESOLVERS[name]
    for protocol in ("UDP", "TCP"):
        assert reaches(IPV6 if ":" in resolver.address else {}, role, resolver, 53, protocol)
    peer = {"ipBlock": {"cidr": "9.9.9.9/32"}}
    own = {"networkPolicy": {"dns": [peer]}}
    assert not reaches(own, role, resolver, 53, "UDP")
    assert reaches(own, role, Place("9.9.9.9"), 53, "UDP")
    assert not reaches({"networkPolicy": {"dns": []}}, role, resolver, 53, "UDP")


@pytest.mark.parametrize("role", ROLES)
def test_port_53_is_all_that_resolvers_have(role: str) -> None:
    for resolver in RESOLVERS.values():
        for port in (80, 8080, 988, 9090):
            assert not reaches({}, role, resolver, port), (resolver, port)
    assert not reaches({}, role, Place("8.8.8.8"), 53, "UDP")


def test_a_shard_asks_nobody() -> None:
    values = yaml.safe_load((CHART / "ci" / "replay-values.yaml").read_text())
    for resolver in RESOLVERS.values():
        assert not reaches(values, "replay", resolver, 53, "UDP")


@pytest.mark.parametrize("name", BUCKETS)
def test_a_learner_with_a_bucket_reaches_it(name: str) -> None:
    """The metadata server as it is and as the data plane rewrites it, and the bucket's API."""
    values = merged(BUCKETS[name], IPV6)
    edges = [(METADATA, 80), (METADATA, 8080), (NODE, 988), (Place("169.254.169.252"), 988)]
    edges += [(STORAGE, 443), (Place("2607:f8b0::5f"), 443)]
    closed = merged(values, {"networkPolicy": {"bucket": False}})
    for place, port in edges:
        assert reaches(values, "learner", place, port), (place, port)
        assert not reaches({}, "learner", place, port), "without a bucket"
        assert not reaches(closed, "learner", place, port), "the values say so"
        for role in ("actor", "test"):
            assert not reaches(values, role, place, port), role
    assert not reaches(values, "learner", STORAGE, 80)


def test_addresses_of_ipv6_are_asked_for() -> None:
    """A plugin whose tables are of IPv4 refuses the whole policy."""
    for values in ({}, BUCKETS["gcsfuse"]):
        assert "::" not in yaml.safe_dump(render(values).of("NetworkPolicy"))


def test_a_local_directory_is_no_bucket() -> None:
    local = {"experiment": {"learner": {"checkpoint": {"directory": "/runs/elsewhere"}}}}
    assert not reaches(local, "learner", METADATA, 80)


def test_the_api_server_may_be_anywhere() -> None:
    """Of either family, and on the node itself."""
    for place in (Place("172.16.0.2"), Place("fd00::2"), NODE):
        assert reaches({}, "cost", place, 443)
        assert reaches({}, "cost", place, 6443)
        assert not reaches({}, "cost", place, 80)
    narrow = {"networkPolicy": {"apiServer": {"cidr": "172.16.0.0/28"}}}
    assert reaches(narrow, "cost", Place("172.16.0.2"), 443)
    assert not reaches(narrow, "cost", Place("172.17.0.2"), 443)


def test_the_controller_of_a_set_reads_the_learners_of_its_set_alone() -> None:
    learner = pod("learner", {"grpc": 8470, "metrics": 9090})

    def reads(
        values: dict[str, Any], namespace: str = "rl", port: int = 9090, **labels: str
    ) -> bool:
        own = {
            "app.kubernetes.io/name": "seedbed-set",
            "app.kubernetes.io/instance": "rates",
            "app.kubernetes.io/component": "controller",
        }
        given = own | {f"app.kubernetes.io/{key}": text for key, text in labels.items()}
        controller = Place("10.4.1.9", given, namespace)
        return allows(render(values).of("NetworkPolicy"), learner, "ingress", controller, port)

    assert reads({"set": "rates"})
    assert not reads({})
    assert not reads({"set": "others"})
    assert not reads({"set": "rates"}, port=8470), "it asks for no action"
    assert not reads({"set": "rates"}, namespace="elsewhere")
    assert not reads({"set": "rates"}, component="learner")
    assert not reads({"set": "rates"}, name="seedbed")


def test_actors_reach_learners_of_their_release_alone() -> None:
    policies = render().of("NetworkPolicy")
    learner = pod("learner", {"grpc": 8470, "metrics": 9090})
    stranger = Place("10.4.1.9", pod("actor").labels | {"app.kubernetes.io/instance": "x"}, "rl")
    assert allows(policies, pod("actor"), "egress", learner, 8470)
    assert not allows(policies, pod("actor"), "egress", learner, 9090)
    assert allows(policies, learner, "ingress", pod("actor"), 8470)
    assert not allows(policies, learner, "ingress", stranger, 8470)
    elsewhere = Place("10.4.1.9", pod("actor").labels, "other")
    assert not allows(policies, learner, "ingress", elsewhere, 8470)
