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

from seedbed.services.cost.job_sets import JobSets
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


PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/rl/jobsets/pong-learner"


@pytest.mark.parametrize(("spec", "wanted"), [({"suspend": True}, 0), ({}, 4)])
def test_all_hosts_are_ended_and_started_as_one(spec: dict[str, Any], wanted: int) -> None:
    with api_of({"spec": spec, "status": {"restarts": 3}}) as api:
        hosts = JobSets(4)
        assert hosts.wanted("pong-learner", "rl") == wanted
        assert hosts.restarts == 3
        hosts.scale("pong-learner", "rl", 0)
        hosts.scale("pong-learner", "rl", 1)  # what the brake knows of a learner
    merge = "application/merge-patch+json"
    assert api.patches == [
        (PATH, merge, {"spec": {"suspend": True}}),
        (PATH, merge, {"spec": {"suspend": False}}),
    ]


def test_all_learners_of_several_hosts_are_counted_ended_and_started() -> None:
    with api_of({"spec": {}, "status": {"restarts": 3}}) as api:
        hosts = JobSets(4, 2)
        assert hosts.wanted("pong-learner", "rl") == 8
        assert hosts.restarts == 6
        hosts.scale("pong-learner", "rl", 0)
        hosts.scale("pong-learner", "rl", 8)
    changes = [(path, patch["spec"]["suspend"]) for path, _, patch in api.patches]
    assert changes == [(f"{PATH}-{rank}", end) for end in (True, False) for rank in range(2)]


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
