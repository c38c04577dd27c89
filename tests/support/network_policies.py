"""A small evaluator of NetworkPolicy, strict where implementations differ.

An `ipBlock` matches no pod, as with Cilium; a node matches rules without peers only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where a packet comes from or goes to: a pod, a node (no address counts), or an address."""

    address: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = ""
    ports: dict[str, int] = field(default_factory=dict)  # of a pod, by name


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector selects."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for term in selector.get("matchExpressions", []):
        value, operator = labels.get(term["key"]), term["operator"]
        if operator == "In" and value not in term["values"]:
            return False
        if operator == "NotIn" and value in term["values"]:
            return False
        if operator in ("Exists", "DoesNotExist") and (value is None) != (operator != "Exists"):
            return False
    return True


def _is_peer(peer: dict[str, Any], place: Place, own_namespace: str) -> bool:
    if block := peer.get("ipBlock"):
        if not place.address or place.namespace:
            return False
        address = ip_address(place.address)
        within = [ip_network(block["cidr"]), *map(ip_network, block.get("except", []))]
        return address in within[0] and not any(address in net for net in within[1:])
    if not place.namespace:
        return False
    names = {"kubernetes.io/metadata.name": place.namespace}
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], names):
            return False
    elif place.namespace != own_namespace:
        return False
    return selects(peer.get("podSelector", {}), place.labels)


def allows(
    policies: list[dict[str, Any]],
    pod: Place,
    direction: str,
    other: Place,
    port: int,
    protocol: str = "TCP",
) -> bool:
    """Whether the policies of a pod let a packet through.

    Args:
        policies: NetworkPolicy objects of the pod's namespace.
        pod: whose policies decide.
        direction: `egress` to `other`, or `ingress` from it.
        other: the other end.
        port: the number of the destination's port.
        protocol: TCP or UDP.
    """
    mine = [
        policy["spec"]
        for policy in policies
        if direction.capitalize() in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], pod.labels)
    ]
    ports = (other if direction == "egress" else pod).ports
    key = "to" if direction == "egress" else "from"
    for rule in (rule for spec in mine for rule in spec.get(direction) or []):
        peers, wanted = rule.get(key), rule.get("ports")
        here = not peers or any(_is_peer(peer, other, pod.namespace) for peer in peers)
        if here and (
            not wanted
            or any(
                each.get("protocol", "TCP") == protocol and _has(each, ports, port)
                for each in wanted
            )
        ):
            return True
    return not mine


def _has(rule: dict[str, Any], names: dict[str, int], port: int) -> bool:
    """Whether a rule's port, by number, by name or up to `endPort`, is this one."""
    first = names.get(rule["port"], rule["port"])
    return first == port or ("endPort" in rule and first <= port <= rule["endPort"])
