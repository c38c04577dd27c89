"""A `kubectl` in PATH that answers from a folder, and runs in it what would run in a pod."""

from __future__ import annotations

import base64
import gzip
import json
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.chart import render

_INSTANCE = "app.kubernetes.io/instance"
_OURS = {"app.kubernetes.io/name": "seedbed"}
_PROGRAM = """#!{python}
import json, subprocess, sys
from pathlib import Path

folder, words = Path({folder!r}), sys.argv[1:]
with (folder / "kubectl.log").open("a") as log:
    log.write(" ".join(word.split("\\n")[0] for word in words) + "\\n")

def fail(text):
    sys.exit("Error from server: " + text)

def read(name):
    sys.stdout.write((folder / name).read_text())

if "exec" in words:
    if not (folder / "exec").exists():
        fail("pods is forbidden: cannot create resource pods/exec")
    command = words[words.index("--") + 1:]
    if command[0] == "python":
        command[0] = sys.executable
    # Where a pod of its own would have mounted the volume of a run.
    asked = sys.stdin.buffer.read().replace(b'"root": "/runs', b'"root": "' + {volume!r}.encode())
    out = subprocess.run(command, stdout=subprocess.PIPE, input=asked).stdout
    limits = (folder / "exec").read_text().split()
    (folder / "exec").write_text(" ".join(limits[1:]))
    if limits and int(limits[0]) < 0:
        at = len(out) + int(limits[0])
        sys.stdout.buffer.write(out[:at] + bytes([out[at] ^ 1]) + out[at + 1:])
    elif limits:
        sys.stdout.buffer.write(out[:int(limits[0])])
        sys.stdout.flush()
        sys.exit("error: connection lost")
    else:
        sys.stdout.buffer.write(out)
elif "create" in words:
    (folder / "created.json").write_text(sys.stdin.read())
    print("pod/pong-fetch-abcde")
elif "delete" in words or "logs" in words:
    pass
elif "patch" in words:
    patch = next(word for word in words if word.startswith("--patch=")).removeprefix("--patch=")
    (folder / "patch.json").write_text(patch)
    patch, name = json.loads(patch), words[words.index("configmap") + 1]
    for file in (folder / "objects.json", folder / "sets.json"):
        content = json.loads(file.read_text())
        for item in content["items"]:
            if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", name):
                data = item["data"] = item.get("data") or {{}}
                if isinstance(patch, dict):
                    data.update(patch["data"])
                    item["data"] = {{key: data[key] for key in data if data[key] is not None}}
                    continue
                for step in patch:
                    key = step["path"].removeprefix("/data/")
                    if step["op"] == "test" and data.get(key) != step["value"]:
                        fail("the server rejected our request due to an error in our request")
                    if step["op"] == "remove":
                        del data[key]
                    if step["op"] == "replace":
                        data[key] = step["value"]
        file.write_text(json.dumps(content))
elif "jobsets.jobset.x-k8s.io" in words:
    if not (folder / "jobsets.json").exists():
        sys.exit('error: the server doesn\\'t have a resource type "jobsets"')
    read("jobsets.json")
elif "namespace" in words:
    if words[-1] not in json.loads((folder / "namespaces.json").read_text()):
        sys.exit("Error from server (NotFound): namespaces not found")
elif "persistentvolumeclaim" in words:
    read("claim.json")
elif "persistentvolumeclaims" in words:
    if not (folder / "claims.json").exists():
        fail("persistentvolumeclaims is forbidden: User cannot list resource")
    read("claims.json")
elif "-l=app.kubernetes.io/name=seedbed-set" in words:
    read("sets.json")
elif "events" in words:
    read("events.json")
elif "pods" in words and "-o=name" in words:
    print("\\n".join("pod/" + pod["metadata"]["name"]
          for pod in json.loads((folder / "pods.json").read_text())["items"]))
elif "pods" in words:
    read("pods.json")
elif "pod" in words:
    read("pod.json")
else:
    read("objects.json")
"""


class StandIn:
    """A cluster with one release, `pong`, and sets; volumes are folders of this machine.

    Args:
        folder: For its files and the volumes.
        values: Values of the chart.
    """

    def __init__(self, folder: Path, values: Mapping[str, Any]) -> None:
        self.folder, self.volume = folder, folder / "volume"
        self.volume.mkdir(parents=True)
        objects = render(dict(values)).all
        text = json.dumps(objects).replace("/runs", str(self.volume))
        kinds = ("StatefulSet", "Deployment", "ConfigMap")
        self.objects = [self._as_live(item) for item in json.loads(text)]
        self._write("objects", [item for item in self.objects if item["kind"] in kinds])
        self._file("sets", {"items": []})
        self._file("claims", {"items": []})
        self._file("events", {"items": []})
        self._file("namespaces", ["default"])
        if sets := [item for item in self.objects if item["kind"] == "JobSet"]:
            self._write("jobsets", sets)
        self.pods([])
        self._file("claim", {"status": {"phase": "Bound"}})
        ready = [{"type": "Ready", "status": "True"}]
        self._file("pod", {"metadata": {"name": "x"}, "status": {"conditions": ready}})
        self.breaks()
        (folder / "bin").mkdir()
        program = folder / "bin" / "kubectl"
        program.write_text(
            _PROGRAM.format(python=sys.executable, folder=str(folder), volume=str(self.volume))
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @staticmethod
    def _as_live(item: dict[str, Any]) -> dict[str, Any]:
        item["metadata"]["namespace"] = "default"
        item["metadata"].setdefault("labels", {})
        if item["kind"] == "Deployment":
            item["status"] = {"readyReplicas": item["spec"].get("replicas", 1)}
        return item

    def _write(self, name: str, items: list[Any]) -> None:
        # As `kubectl get -l app.kubernetes.io/name=seedbed` answers.
        ours = [x for x in items if _INSTANCE in x["metadata"]["labels"]]
        self._file(name, {"items": ours})

    def _file(self, name: str, content: Any) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(content))

    def state(self, **data: str) -> None:
        """Let the meter have kept this."""
        for item in self.objects:
            if item["metadata"]["name"] == "pong-state":
                item["data"] = data
        kinds = ("StatefulSet", "Deployment", "ConfigMap")
        self._write("objects", [item for item in self.objects if item["kind"] in kinds])

    def a_set(
        self,
        name: str,
        runs: Mapping[str, Any],
        awake: Sequence[str] = (),
        given: Mapping[str, str] | None = None,
        **data: str,
    ) -> None:
        """Let there be a set, with these runs as its controller keeps them.

        Args:
            name: Name of the set.
            runs: Each run by name; empty before the controller has begun.
            awake: Those that have the objects of a release, beside what is there.
            given: What the installation has given.
            data: What the controller and people have written.
        """
        labels = {"app.kubernetes.io/name": "seedbed-set", "app.kubernetes.io/instance": name}
        packed = base64.b64encode(gzip.compress(json.dumps(runs).encode())).decode()
        claim = {"name": "set", "persistentVolumeClaim": {"claimName": f"{name}-set"}}
        mount = {"name": "set", "mountPath": str(self.set_volume(name))}
        container = {"name": "controller", "image": "seedbed-cost:1", "volumeMounts": [mount]}
        pod = {"containers": [container], "volumes": [claim]}
        items = [
            {"kind": "ConfigMap", "metadata": {"name": f"{name}-set"}, "data": dict(given or {})},
            {
                "kind": "ConfigMap",
                "metadata": {"name": f"{name}-set-state"},
                "data": data,
                "binaryData": {"runs.json.gz": packed} if runs else {},
            },
            {
                "kind": "Deployment",
                "metadata": {"name": f"{name}-set"},
                "spec": {"replicas": 1, "template": {"spec": pod}},
                "status": {"readyReplicas": 1},
            },
        ]
        for item in items:
            item["metadata"] |= {"namespace": "default", "labels": dict(labels)}
        items[2]["metadata"]["labels"]["app.kubernetes.io/component"] = "controller"
        there = self.json("sets")["items"]
        self._file("sets", {"items": [*there, *items]})
        objects = self.json("objects")["items"]
        template = [x for x in self.objects if x["metadata"]["labels"].get(_INSTANCE) == "pong"]
        for run in awake:
            for item in json.loads(json.dumps(template).replace("pong", run)):
                item["metadata"]["labels"]["seedbed.dev/set"] = name
                if item["metadata"]["name"] == f"{run}-state":
                    item["data"] = {"unixTime": f"{time.time():.3f}"}
                if item["kind"] in ("StatefulSet", "Deployment", "ConfigMap"):
                    objects.append(item)
        self._file("objects", {"items": objects})

    def rests(self, *runs: str) -> None:
        """Let the controller have taken away what these runs had, but for their states."""
        items = self.json("objects")["items"]
        left = [
            x
            for x in items
            if (of := x["metadata"]["labels"][_INSTANCE]) not in runs
            or x["metadata"]["name"] == f"{of}-state"
        ]
        self._file("objects", {"items": left})

    def removes_set(self, name: str) -> None:
        """Let the release of a set be removed, and leave its runs alone."""
        items = self.json("sets")["items"]
        self._file(
            "sets", {"items": [x for x in items if x["metadata"]["labels"][_INSTANCE] != name]}
        )

    def removes_claims(self) -> None:
        """Let no claim be there."""
        self._file("claims", {"items": []})

    def claims(self, name: str, *runs: str, phase: str = "Bound", ranks: int = 1) -> None:
        """Let there be claims for the learners of each of these runs of a set, beside others."""
        there = self.json("claims")["items"]
        new = [
            {
                "metadata": {
                    "name": f"runs-{run}-learner-{rank}",
                    "namespace": "default",
                    "labels": {_INSTANCE: run, "seedbed.dev/set": name} | _OURS,
                },
                "status": {"phase": phase},
            }
            for run in runs
            for rank in range(ranks)
        ]
        self._file("claims", {"items": [*there, *new]})

    def runs_controller(self, name: str) -> None:
        """Let the pod of a set's controller run."""
        pod = self._pod(f"{name}-set-abc", f"{name}-set")
        pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] = str(self.set_volume(name))
        self._file("pods", {"items": [*self.json("pods")["items"], pod]})

    def controller_cannot_start(self, name: str, reason: str = "", message: str = "") -> None:
        """Let the controller of a set have no pod that is ready.

        Args:
            name: Name of the set.
            reason: Why its container waits; without one no pod can be made.
            message: The message of that, or of the event.
        """
        items = self.json("sets")["items"]
        for item in items:
            if (item["kind"], item["metadata"]["name"]) == ("Deployment", f"{name}-set"):
                item["status"] = {}
        self._file("sets", {"items": items})
        pod = self._pod(f"{name}-set-7f-abc", f"{name}-set")
        waiting = {"waiting": {"reason": reason, "message": message}}
        pod["status"]["containerStatuses"] = [
            {"name": "controller", "image": "r/seedbed-cost:1", "state": waiting}
        ]
        self._file("pods", {"items": [pod] if reason else []})
        about = {"kind": "ReplicaSet", "name": f"{name}-set-7f"}
        event = {"involvedObject": about, "reason": "FailedCreate", "message": message,
                 "lastTimestamp": "2999-01-01T00:00:00Z"}  # fmt: skip
        self._file("events", {"items": [] if reason else [event]})

    def claim_of_set(self, name: str) -> None:
        """Let there be the claim of a set's controller."""
        labels = {_INSTANCE: name, "app.kubernetes.io/name": "seedbed-set"}
        meta = {"name": f"{name}-set", "namespace": "default", "labels": labels}
        there = self.json("claims")["items"]
        self._file("claims", {"items": [*there, {"metadata": meta, "status": {"phase": "Bound"}}]})

    def set_volume(self, name: str) -> Path:
        """Folder of this machine that is the volume of a set's controller."""
        return self.folder / f"{name}-set"

    def data(self, name: str) -> dict[str, str]:
        """What a ConfigMap has by now."""
        every = self.json("objects")["items"] + self.json("sets")["items"]
        named = [x for x in every if (x["kind"], x["metadata"]["name"]) == ("ConfigMap", name)]
        (found,) = named
        return dict(found.get("data") or {})

    def writes(self, name: str, **data: str) -> None:
        """Let somebody else write keys of a ConfigMap."""
        for file in ("objects", "sets"):
            items = self.json(file)["items"]
            for item in items:
                if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", name):
                    item["data"] = (item.get("data") or {}) | data
            self._file(file, {"items": items})

    def without_release(self) -> None:
        """Let the release not be there."""
        items = self.json("objects")["items"]
        ours = [x for x in items if x["metadata"]["labels"][_INSTANCE] != "pong"]
        self._file("objects", {"items": ours})

    def pods(self, names: list[str], **volumes: str) -> None:
        """Let these pods of the learner run, each with the claim that is named, or another one."""
        self._file("pods", {"items": [self._pod(name, volumes.get(name)) for name in names]})

    def _pod(self, name: str, claim: str | None) -> dict[str, Any]:
        claim = claim or f"runs-{name}"
        mount = {"name": "runs", "mountPath": str(self.volume)}
        volume = {"name": "runs", "persistentVolumeClaim": {"claimName": claim}}
        return {
            "metadata": {"name": name, "labels": {}},
            "spec": {
                "containers": [{"name": "learner", "volumeMounts": [mount]}],
                "volumes": [volume],
            },
            "status": {"containerStatuses": [{"name": "learner", "state": {"running": {}}}]},
        }

    def holds_nothing(self) -> None:
        """Let there be no release, no set and no volume."""
        for name in ("objects", "sets", "claims"):
            self._file(name, {"items": []})

    def unbound(self) -> None:
        """Let the claim wait for its first pod."""
        self._file("claim", {"status": {"phase": "Pending"}})

    def breaks(self, *after: int) -> None:
        """Let the next connections break after so many bytes each; those behind them hold.

        One of a negative number ends whole, with a wrong byte so far before its end.
        """
        (self.folder / "exec").write_text(" ".join(map(str, after)))

    def forbids_exec(self) -> None:
        """Let the account have no right to `kubectl exec`."""
        (self.folder / "exec").unlink()

    @property
    def calls(self) -> list[str]:
        """What kubectl was called with."""
        log = self.folder / "kubectl.log"
        return log.read_text().splitlines() if log.exists() else []

    def json(self, name: str) -> Any:
        """What a call has left."""
        return json.loads((self.folder / f"{name}.json").read_text())
