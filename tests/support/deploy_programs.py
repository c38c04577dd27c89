"""What `seedbed deploy` calls, in PATH: a Helm that renders, and programs that keep the words."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import yaml

from tests.support.api_server import ApiServer
from tests.support.chart import helm

HELM = """
if [ "$1" = template ]; then exec {helm} "$@" --kube-version=1.36.0; fi
if [ "$1" = list ]; then cat {folder}/releases 2>/dev/null; exit 0; fi
echo "$@" >> {folder}/helm.log
cat {folder}/helm.stderr >&2 2>/dev/null && exit 1
for word in "$@"; do
  case "$word" in --values=*) cp "${{word#--values=}}" {folder}/ ;; esac
done
"""
# Pods and the controller's Deployment as they are, one after the other; the last one stays.
KUBECTL = """
show_next() {{
  next=$(ls $1 | head -1)
  cat $1/$next
  [ $(ls $1 | wc -l) = 1 ] || rm $1/$next
}}
case "$*" in
  *"get namespace "*)
    [ ! -e {folder}/forbidden ] || {{ echo "Error from server (Forbidden)" >&2; exit 1; }}
    cat {folder}/namespace 2>/dev/null || {{ echo "Error from server (NotFound)" >&2; exit 1; }} ;;
  *"auth can-i"*)
    echo "$*" | sed 's/.*can-i //' >> {folder}/asked.log
    if echo "$*" | sed 's/.*can-i //' | grep -qxF -f {folder}/denied 2>/dev/null
    then echo no; exit 1; else echo yes; fi ;;
  *patch*) echo "$@" >> {folder}/kubectl.log ;;
  *-l=app.kubernetes.io/name=*)
    cat "{folder}/$(echo "$*" | sed 's/.*-l=app.kubernetes.io.name=//').json" 2>/dev/null ||
    echo '{{"items": []}}' ;;
  *"config view"*) cat {folder}/server 2>/dev/null ;;
  *"get events"*) cat {folder}/events ;;
  *"get pods"*) show_next {folder}/pods ;;
  *"get deployment "*) show_next {folder}/deployments ;;
  *exec*--json) cat {folder}/status ;;
  *exec*) echo "the page of status" ;;
esac
"""
DOCKER = """
echo "$@" >> {folder}/docker.log
for word in "$@"; do
  case "$word" in --iidfile=*) echo sha256:0123456789abcdef > "${{word#--iidfile=}}" ;; esac
done
"""


class Programs:
    """What is in PATH, and what was asked of it."""

    def __init__(self, folder: Path, server: ApiServer) -> None:
        self.folder, self.path, self.server = folder, folder / "bin", server
        self.path.mkdir()
        (folder / "pods").mkdir()
        (folder / "deployments").mkdir()
        self.deployments((1, 1, 1, 1))

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.write_text("#!/bin/sh" + text.format(folder=self.folder, helm=helm()))
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def pods(self, *lists: list[dict[str, Any]]) -> None:
        for number, pods in enumerate(lists):
            (self.folder / "pods" / f"{number:03}").write_text(json.dumps({"items": pods}))

    def deployments(self, *told: tuple[int, int, int, int]) -> None:
        """Let the controller's Deployment be so: generation, the observed one, pods, new pods."""
        for number, (generation, observed, replicas, updated) in enumerate(told):
            status = {"observedGeneration": observed, "replicas": replicas}
            found = {
                "metadata": {"generation": generation},
                "status": {**status, "updatedReplicas": updated},
            }
            (self.folder / "deployments" / f"{number:03}").write_text(json.dumps(found))

    def status(self, sessions: int) -> None:
        found = {
            "state": "training", "waiting_for": None, "over": None, "stop_reason": None,
            "numbers": {"sessions": sessions}, "counters": {"env_frames": 100 * sessions},
        }  # fmt: skip
        (self.folder / "status").write_text(json.dumps(found))

    def log(self, name: str) -> list[str]:
        file = self.folder / f"{name}.log"
        return file.read_text().splitlines() if file.exists() else []

    def values(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.folder / f"{name}.yaml").read_text())
        return found


def pod(name: str, ready: bool = False, **container: Any) -> dict[str, Any]:
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": str(ready)},
    ]
    containers = [{"name": "learner", "image": "r/seedbed-learner:x", **container}]
    return {
        "metadata": {"name": name},
        "status": {"conditions": conditions, "containerStatuses": containers, "phase": "Running"},
    }
