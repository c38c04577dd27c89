"""A stand-in for the API server: discovery, and the objects that a template's `lookup` finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from tests.support.chart import CHART, Rendered, helm

# The kinds of the chart by group and version, as discovery tells them to Helm.
KINDS = {
    "v1": [
        "Namespace",
        "ConfigMap",
        "Secret",
        "Service",
        "ServiceAccount",
        "Pod",
        "PersistentVolumeClaim",
    ],
    "apps/v1": ["Deployment", "StatefulSet"],
    "batch/v1": ["Job", "CronJob"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
    "rbac.authorization.k8s.io/v1": ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
    "admissionregistration.k8s.io/v1": [
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ],
    "monitoring.coreos.com/v1": ["PodMonitor"],
    "monitoring.googleapis.com/v1": ["PodMonitoring"],
    "keda.sh/v1alpha1": ["ScaledObject", "TriggerAuthentication"],
    "cert-manager.io/v1": ["Certificate", "Issuer"],
}
WHOLE_CLUSTER = (
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    *KINDS["admissionregistration.k8s.io/v1"],
)


def plural(kind: str) -> str:
    """The name of a kind in a path."""
    word = kind.lower()
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def helms() -> list[str]:
    """The Helm of the other tests, and `helm3` and `helm4` where the machine has them."""
    found = (shutil.which(name) for name in ("helm3", "helm4"))
    unlike = {str(Path(path).resolve()): path for path in (*found, helm()) if path}
    return list(unlike.values())


class ApiServer:
    """Objects as a release left them, at an address for Helm.

    Attributes:
        objects: Every object by kind and name.
        kinds: What discovery tells, by group and version.
        file: The KUBECONFIG for it.
    """

    def __init__(self, url: str, folder: Path) -> None:
        """Write the credentials that Helm reads."""
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.kinds = dict(KINDS)
        self.file = folder / "kubeconfig"
        self.file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
                    "clusters": [{"name": "here", "cluster": {"server": url}}],
                    "users": [{"name": "me", "user": {}}],
                }
            )
        )

    def apply(self, rendered: Rendered) -> None:
        """Keep what was rendered; `replicas` and `data` that nothing says stay as they are."""
        for item in rendered.all:
            key = item["kind"], item["metadata"]["name"]
            old = self.objects.get(key, {})
            new = json.loads(json.dumps(item))
            if "data" in old and "data" not in new:
                new["data"] = old["data"]
            if key[0] in KINDS["apps/v1"]:
                new["spec"].setdefault("replicas", old.get("spec", {}).get("replicas", 1))
            self.objects[key] = new

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Do what `kubectl scale` and the cost meter do."""
        self.objects[kind, name]["spec"]["replicas"] = replicas

    def helm(
        self, *arguments: str, values: dict[str, Any] | None = None, binary: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a helm command that sees the objects."""
        return subprocess.run(
            [binary or helm(), *arguments, "--kubeconfig", str(self.file), "-f", "-"],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            env={**os.environ, "KUBECACHEDIR": str(self.file.parent / "cache")},
        )

    def add_group(self, version: str, kinds: list[str]) -> None:
        """Tell of kinds that a controller has brought."""
        self.kinds[version] = kinds

    def template(
        self, values: dict[str, Any] | None = None, release: str = "pong", binary: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Render an upgrade, as `helm upgrade` would, or not."""
        return self.helm(
            "template", release, str(CHART), "-n", "rl", "--dry-run=server", "--is-upgrade",
            "--disable-openapi-validation", "--kube-version=1.36.0",
            values=values, binary=binary,
        )  # fmt: skip

    def render(
        self, values: dict[str, Any] | None = None, release: str = "pong", binary: str = ""
    ) -> Rendered:
        """Render an upgrade, as `helm upgrade` would."""
        answer = self.template(values, release, binary)
        assert answer.returncode == 0, answer.stderr
        return Rendered(answer.stdout)

    def upgrade(self, values: dict[str, Any] | None = None, **more: str) -> Rendered:
        """Render an upgrade, and apply it."""
        rendered = self.render(values, **more)
        self.apply(rendered)
        return rendered

    def answer(self, path: str) -> dict[str, Any] | None:
        """What a GET of this path finds."""
        parts = path.partition("?")[0].strip("/").split("/")
        match parts:
            case ["version"]:
                return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"]}
            case ["apis"]:
                versions = [
                    {"groupVersion": name, "version": name.rpartition("/")[2]}
                    for name in self.kinds
                    if name != "v1"
                ]
                groups = [
                    {"name": v["groupVersion"].partition("/")[0], "versions": [v],
                     "preferredVersion": v}
                    for v in versions
                ]  # fmt: skip
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["api" | "apis", *rest] if "/".join(rest) in self.kinds:
                version = "/".join(rest)
                resources = [
                    {"name": plural(kind), "kind": kind, "namespaced": kind not in WHOLE_CLUSTER,
                     "singularName": kind.lower(), "verbs": ["get", "list"]}
                    for kind in self.kinds[version]
                ]  # fmt: skip
                return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
            case [*_, "namespaces", _, resource]:
                kinds = {kind for kind, _ in self.objects if plural(kind) == resource}
                query = parse_qs(urlparse(path).query).get("labelSelector", [""])[0]
                wanted = dict(one.split("=") for one in query.split(",") if one)
                items = [
                    item
                    for (kind, _), item in self.objects.items()
                    if kind in kinds and wanted.items() <= _labels(item).items()
                ]
                return {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}
            case [*_, resource, name]:
                for (kind, known), item in self.objects.items():
                    if known == name and resource == plural(kind):
                        return item
        return None


def _labels(item: dict[str, Any]) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = server.answer(self.path)
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                       "reason": "NotFound", "code": 404}  # fmt: skip
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http,
    ):
        server = ApiServer(f"http://127.0.0.1:{http.server_port}", Path(folder))
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
