"""An API server for the cost meter: pods, scales and one ConfigMap, which can kill its client."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


def pod(component: str, number: int, started: float) -> dict[str, Any]:
    """A running pod that asks for one vCPU, with as much text as the chart's pods have."""
    name = f"pong-{component}-{number}"
    mounts = [{"name": f"v{i}", "mountPath": f"/v{i}", "readOnly": True} for i in range(6)]
    managed = {f"f:field{i}": {"f:name": {}, "f:value": {}} for i in range(80)}
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "namespace": "rl", "resourceVersion": "1",
            "labels": {"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/instance": "pong",
                       "app.kubernetes.io/component": component, "pod-template-hash": "abcdef"},
            "annotations": {"checksum/experiment": "0" * 64, "prometheus.io/scrape": "true"},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "nodeName": f"node-{number}",
            "containers": [{
                "name": component, "image": "localhost/seedbed:0.2.0", "args": ["--x=y"] * 20,
                "env": [{"name": f"E{i}", "value": "v"} for i in range(20)],
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
                "volumeMounts": mounts, "securityContext": {"readOnlyRootFilesystem": True},
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": 9090}},
            }],
            "volumes": [{"name": f"v{i}", "emptyDir": {}} for i in range(6)],
            "tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(4)],
        },
        "status": {
            "phase": "Running",
            "startTime": datetime.fromtimestamp(started, UTC).isoformat().replace("+00:00", "Z"),
            "conditions": [{"type": f"c{i}", "status": "True"} for i in range(5)],
            "containerStatuses": [{
                "name": component, "restartCount": 0, "ready": True, "image": "i", "imageID": "i",
                "state": {"running": {"startedAt": "2026-08-03T10:00:00Z"}},
            }],
        },
    }  # fmt: skip


class MeterApi:
    """A release named `pong` in the namespace `rl`, whose pods follow its scales at once.

    Attributes:
        calls: Method and last part of each call's path so far; `watch` for a watch.
        kill: The number of the call at which `victim` is killed, and whether after it is done.
        victim: The meter's process.
        learner: What the learner answers at each poll; the last answer stays.
        arguments: The meter's command line.
    """

    def __init__(self, scales: dict[str, int], started: float) -> None:
        self.arguments: list[str] = []
        self.scales, self.started = dict(scales), started
        self.state: dict[str, str] = {}
        self.calls: list[str] = []
        self.kill: tuple[int, bool] | None = None
        self.victim = 0
        self.learner: list[dict[str, Any]] = []
        self.polls = 0
        self.expired = False
        self.changed = threading.Condition()
        self._version = 1
        self._events: list[dict[str, Any]] = []
        self.pods = {p["metadata"]["uid"]: p for c, n in scales.items() for p in self._made(c, n)}

    def _made(self, component: str, number: int) -> list[dict[str, Any]]:
        return [pod(component, i, self.started) for i in range(number)]

    def until(self, what: Callable[[], bool], why: str) -> None:
        """Wait for something to be true, which calls of the meter change."""
        with self.changed:
            assert self.changed.wait_for(what, timeout=120), f"{why}: {self.calls[-20:]}"

    def scale(self, component: str, replicas: int) -> None:
        """Do what `kubectl scale` does, and the controllers."""
        with self.changed:
            self.scales[component] = replicas
            wanted = {p["metadata"]["uid"]: p for p in self._made(component, replicas)}
            label = "app.kubernetes.io/component"
            for uid, item in list(self.pods.items()):
                if item["metadata"]["labels"][label] == component and uid not in wanted:
                    self._event("DELETED", self.pods.pop(uid))
            for uid in wanted.keys() - self.pods.keys():
                self.pods[uid] = wanted[uid]
                self._event("ADDED", wanted[uid])
            self.changed.notify_all()

    def _event(self, kind: str, item: dict[str, Any]) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.append({"type": kind, "object": item})

    def answer(self, method: str, url: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Answer one call; the process that made it may be dead afterwards."""
        path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
        with self.changed:
            if path == "/status":
                return self._status()
            name = (
                "watch" if "watch" in query else path.split("/")[-1 if "scale" not in path else -2]
            )
            self.calls.append(f"{method} {name}")
            dies = self.kill if self.kill and self.kill[0] == len(self.calls) else None
            if dies and not dies[1]:
                os.kill(self.victim, signal.SIGKILL)
                return 500, b""
            code, answer = self._done(method, path, query, body)
            if dies:
                os.kill(self.victim, signal.SIGKILL)
            self.changed.notify_all()
            return code, answer

    def _status(self) -> tuple[int, bytes]:
        if not self.learner or not self.scales["learner"]:
            return 503, b""
        self.polls += 1
        return 200, json.dumps(self.learner[min(self.polls, len(self.learner)) - 1]).encode()

    def _done(
        self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]
    ) -> tuple[int, bytes]:
        if path.endswith("/pong-state"):
            for key, value in body.get("data", {}).items():
                self.state.pop(key, None)
                if value is not None:
                    self.state[key] = value
            return 200, json.dumps({"data": self.state}).encode()
        if path.endswith("/scale"):
            component = path.split("/")[-2].removeprefix("pong-")
            if method == "PATCH":
                self.scale(component, body["spec"]["replicas"])
            return 200, json.dumps({"spec": {"replicas": self.scales[component]}}).encode()
        if "watch" in query:
            if self.expired:
                self.expired = False
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                return 200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
            since = int(query["resourceVersion"][0])
            new = self._events[max(0, since - 1) :]
            return 200, b"".join(json.dumps(event).encode() + b"\n" for event in new)
        if path.endswith("/persistentvolumeclaims"):
            return 200, b'{"kind": "PersistentVolumeClaimList", "metadata": {}, "items": []}'
        first, size = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        items = list(self.pods.values())
        more = {"continue": str(first + size)} if first + size < len(items) else {}
        page = items[first : first + size]
        meta = {"resourceVersion": str(self._version), **more}
        return 200, json.dumps({"kind": "PodList", "metadata": meta, "items": page}).encode()


@contextmanager
def meter_api(folder: Path, scales: dict[str, int], started: float) -> Iterator[MeterApi]:
    """Serve on a free port of this machine; `folder` gets the files `kubeconfig` and `prices`."""
    api = MeterApi(scales, started)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = json.loads(
                self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
            )
            code, text = api.answer(self.command, self.path, body)
            try:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                pass  # the client was killed

        do_GET = do_PATCH = answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        url = f"http://127.0.0.1:{http.server_port}"
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "users": [{"name": "me", "user": {}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(config))
        prices = {"families": {"x": {"cpu": 1.0, "memory_gib": 0.0, "spot": 0.5}}}
        (folder / "prices").write_text(json.dumps({"prices": prices, "defaultFamily": "x"}))
        api.arguments = [
            "cost", "--release=pong", "--namespace=rl", f"--learner={url}/status", "--replay=2",
            f"--settings={folder / 'prices'}", "--run=pong", "--insecure", "--port=0",
        ]  # fmt: skip
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            http.shutdown()
            thread.join()
