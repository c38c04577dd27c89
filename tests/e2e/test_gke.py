"""What GKE has and a plain cluster has not: resolvers that are no pods, and accelerators."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release import Release, command, runs_to_its_end, until, values

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

NOWHERE: dict[str, Any] = {"pod": {"nodeSelector": {"seedbed.test/nowhere": "true"}}}
# Forwards queries on an address of the node to the cluster's DNS, as NodeLocal DNSCache does.
RESOLVER = """
import socket, sys
words = [line.split() for line in open("/etc/resolv.conf")]
upstream = next(line[1] for line in words if line and line[0] == "nameserver")
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
while True:
    query, client = server.recvfrom(4096)
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.settimeout(5)
    asking.sendto(query, (upstream, 53))
    try:
        server.sendto(asking.recv(4096), client)
    except TimeoutError:
        pass
"""
# A pod's first packets can pass before its policies are enforced. The API server is closed to an
# actor in both cases, so the name is asked for once that address is closed.
RESOLVES = """
import os, socket
while True:
    try:
        socket.create_connection((os.environ["KUBERNETES_SERVICE_HOST"], 443), 2).close()
    except TimeoutError:
        break
socket.getaddrinfo("kubernetes.default.svc.cluster.local", 443)
"""


def test_names_resolve_through_a_resolver_of_the_node(namespace: str, tmp_path: Path) -> None:
    dns = Release("dns", namespace, tmp_path)

    def given(allowed: bool) -> dict[str, Any]:
        dns = "auto" if allowed else [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
        return values(learner=NOWHERE, actor=NOWHERE, auth={"enabled": False},
                      networkPolicy={"dns": dns})  # fmt: skip

    dns.install(given(True))
    image = dns.get("deployment/dns-actor")["spec"]["template"]["spec"]["containers"][0]["image"]
    # An address of the node on which the cluster's own DNS does not listen: the pods' gateway.
    pod = dns.until(lambda: dns.pods("cost")[0]["status"].get("podIP"), "a pod has an address")
    address = str(ipaddress.ip_network(f"{pod}/24", strict=False)[1])
    resolver = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{namespace}-resolver", "namespace": "kube-system"},
        "spec": {
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "containers": [
                {
                    "name": "c",
                    "image": image,
                    "command": ["python", "-c", RESOLVER, address],
                    "securityContext": {"runAsUser": 0},
                }
            ],
        },
    }
    file = tmp_path / "resolver.json"
    file.write_text(json.dumps(resolver))
    command("kubectl", "apply", "-f", str(file))
    try:
        command("kubectl", "-n", "kube-system", "wait", "--for=condition=Ready",
                f"pod/{namespace}-resolver", "--timeout=60s")  # fmt: skip
        labels = {
            "app.kubernetes.io/name": "seedbed",
            "app.kubernetes.io/instance": "dns",
            "app.kubernetes.io/component": "actor",
        }
        through = {"dnsPolicy": "None", "dnsConfig": {"nameservers": [address]}}
        assert runs_to_its_end(dns, labels, RESOLVES, image, **through) == 0
        dns.upgrade(given(False))
        # The rule is taken away a moment after the upgrade.
        until(lambda: runs_to_its_end(dns, labels, RESOLVES, image, **through), "it is closed")
    finally:
        command("kubectl", "delete", "-f", str(file), "--grace-period=0", "--force")
    dns.uninstall()


def test_a_gpu_that_is_not_there_ends_the_learner_at_once(namespace: str, tmp_path: Path) -> None:
    """It never trains on the CPU beside a paid GPU."""
    (node,) = json.loads(command("kubectl", "get", "nodes", "-o", "json"))["items"]
    name = node["metadata"]["name"]

    def offer(gpus: str | None) -> None:
        patch = json.dumps({"status": {"capacity": {"nvidia.com/gpu": gpus}}})
        command("kubectl", "patch", "node", name, "--subresource=status", "--type=merge", "-p",
                patch)  # fmt: skip

    offer("1")
    try:
        paid = Release("paid", namespace, tmp_path)
        gpu: dict[str, Any] = {
            "accelerator": {"type": "gpu"},
            "image": {"repository": "seedbed-learner"},
        }
        paid.install(values(learner=gpu))

        def ended() -> int:
            statuses = [
                status for pod in paid.pods("learner")
                for status in pod["status"].get("containerStatuses", [])
            ]  # fmt: skip
            states = [status[key] for status in statuses for key in ("state", "lastState")]
            return next((s["terminated"]["exitCode"] for s in states if "terminated" in s), 0)

        assert paid.until(ended, "the learner has ended") == 12
        meter = paid.pods("cost")[0]["metadata"]["name"].removeprefix("paid-")
        paid.until(
            lambda: any(
                line.startswith("seedbed_exit_code{") and line.endswith(" 12.0")
                for line in (paid.http(meter, 9092, "metrics") or "").splitlines()
            ),
            "the meter says so",
        )
        paid.uninstall()
    finally:
        offer(None)
