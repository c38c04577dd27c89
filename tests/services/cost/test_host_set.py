"""Hosts of one learner: the meter reads, ends and starts their workload, and bills every node."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes import client

from seedbed.services.cost.host_set import HostSet
from seedbed.services.cost.prices import PriceList, Settings
from tests.services.cost.test_meter import Scene
from tests.services.cost.test_usage import container, pod

TPU = {"cpu": "1", "google.com/tpu": "4"}


class Api:
    """One object behind the API server's address, and the patches that it got."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.item = item
        self.patches: list[tuple[str, str, dict[str, Any]]] = []


@contextmanager
def api_of(item: dict[str, Any]) -> Iterator[Api]:
    api = Api(item)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "PATCH":
                kind = self.headers["Content-Type"]
                api.patches.append((self.path, kind, json.loads(body)))
            text = json.dumps(api.item).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PATCH = _answer

        def log_message(self, *_: Any) -> None:
            pass

    before = client.Configuration._default
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{http.server_port}"
        client.Configuration.set_default(configuration)
        try:
            yield api
        finally:
            client.Configuration._default = before
            http.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("kind", "path", "spec", "wanted", "ended", "started"),
    [
        ("JobSet", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/rl/jobsets/pong-learner",
         {"suspend": True}, 0, {"suspend": True}, {"suspend": False}),
        ("JobSet", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/rl/jobsets/pong-learner",
         {}, 4, {"suspend": True}, {"suspend": False}),
        ("LeaderWorkerSet",
         "/apis/leaderworkerset.x-k8s.io/v1/namespaces/rl/leaderworkersets/pong-learner",
         {"replicas": 1}, 4, {"replicas": 0}, {"replicas": 1}),
        ("LeaderWorkerSet",
         "/apis/leaderworkerset.x-k8s.io/v1/namespaces/rl/leaderworkersets/pong-learner",
         {"replicas": 0}, 0, {"replicas": 0}, {"replicas": 1}),
    ],
)  # fmt: skip
def test_all_hosts_are_ended_and_started_as_one(
    kind: str,
    path: str,
    spec: dict[str, Any],
    wanted: int,
    ended: dict[str, Any],
    started: dict[str, Any],
) -> None:
    with api_of({"spec": spec, "status": {"restarts": 3}}) as api:
        hosts = HostSet(kind, 4)
        assert hosts.wanted("pong-learner", "rl") == wanted
        assert hosts.restarts == 3
        hosts.scale("pong-learner", "rl", 0)
        hosts.scale("pong-learner", "rl", 1)  # what the brake knows of a learner
    merge = "application/merge-patch+json"
    assert api.patches == [(path, merge, {"spec": ended}), (path, merge, {"spec": started})]


@pytest.mark.parametrize(
    ("kind", "spec", "paths", "ended", "started", "restarts"),
    [
        ("JobSet", {}, ["jobset.x-k8s.io/v1alpha2/namespaces/rl/jobsets/pong-learner-0",
                        "jobset.x-k8s.io/v1alpha2/namespaces/rl/jobsets/pong-learner-1"],
         {"suspend": True}, {"suspend": False}, 6),
        ("LeaderWorkerSet", {"replicas": 2},
         ["leaderworkerset.x-k8s.io/v1/namespaces/rl/leaderworkersets/pong-learner"],
         {"replicas": 0}, {"replicas": 2}, 3),
    ],
)  # fmt: skip
def test_all_learners_of_several_hosts_are_counted_ended_and_started(
    kind: str,
    spec: dict[str, Any],
    paths: list[str],
    ended: dict[str, Any],
    started: dict[str, Any],
    restarts: int,
) -> None:
    with api_of({"spec": spec, "status": {"restarts": 3}}) as api:
        hosts = HostSet(kind, 4, 2)
        assert hosts.wanted("pong-learner", "rl") == 8
        assert hosts.restarts == restarts
        hosts.scale("pong-learner", "rl", 0)
        hosts.scale("pong-learner", "rl", 8)
    changes = [(path, patch["spec"]) for path, _, patch in api.patches]
    assert changes == [(f"/apis/{path}", change) for change in (ended, started) for path in paths]


def test_restarts_of_all_hosts_are_those_of_the_learner() -> None:
    scene = Scene()
    scene.cluster.items[0].metadata.labels["app.kubernetes.io/component"] = "learner"
    scene.cluster.host_restarts = 5
    scene.meter.reconcile()
    assert scene.meter.restarts["learner"] == 5, "the pods are new after each"


def test_every_node_of_a_slice_is_paid() -> None:
    scene = Scene()
    scene.meter.prices = PriceList(Settings.model_validate({}))
    selector = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    hosts = [pod([container(TPU)]) for _ in range(4)]
    for number, item in enumerate(hosts):
        item.metadata.labels["app.kubernetes.io/component"] = "learner"
        item.spec.node_selector = selector
        item.spec.node_name = f"node-{number}"
    scene.cluster.items = hosts
    scene.meter.reconcile()
    assert sum(scene.meter.rates.values()) == pytest.approx(4 * 4 * 2.70)
