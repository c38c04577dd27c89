"""`seedbed check release`: what keeps a release from working, from what kubectl shows of it.

The objects are those of the rendered chart, with pods as the kubelet would report them; a small
program in PATH takes the place of kubectl, which only a cluster could answer.
"""

from __future__ import annotations

import copy
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import render

KUBECTL = """#!/bin/sh
case "$*" in
  *api-resources*) ;;
  *"get namespace"*) cat {folder}/namespace >&2; [ ! -s {folder}/namespace ] ;;
  *"--all-namespaces"*) cat {folder}/others ;;
  *"get events"*) cat {folder}/events ;;
  *"get deployments"*) cat {folder}/forbidden >&2; cat {folder}/objects; [ ! -s {folder}/forbidden ] ;;
  *"get secret"*|*"get configmap"*) for word in "$@"; do echo $word; done | grep -v -x -f {folder}/missing ;;
  *exec*) cat {folder}/status ;;
  *logs*) cat {folder}/log ;;
esac
"""  # noqa: E501
NOW = "2999-01-01T00:00:00Z"
MISSING = 'MountVolume.SetUp failed for volume "x" : secret "{}" not found'


class Scene:
    """A release whose pods play, and what a case breaks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rendered = render({"actor": {"replicas": 1}})
        kinds = ("Deployment", "StatefulSet", "CronJob", "ConfigMap")
        found = [item for kind in kinds for item in rendered.of(kind)]
        self.objects: list[dict[str, Any]] = copy.deepcopy(found)  # others render the same
        for item in self.objects:
            item["metadata"] |= {"creationTimestamp": "2020-01-01T00:00:00Z", "namespace": "rl"}
        self.learner, self.actor, self.cost = (
            self._pod(f"pong-{name}") for name in ("learner-0", "actor-7f-a", "cost-7f-b")
        )
        self.events: list[dict[str, Any]] = []
        now = f"{time.time():.0f}"
        self.state = {"unixTime": now, "lastResort": now, "dollars": "0.5"}
        self.sessions, self.log = 2, ""
        self.missing = self.forbidden = self.namespace = ""

    def _pod(self, name: str) -> dict[str, Any]:
        component = name.split("-")[1]
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
        containers = [
            {"name": component, "image": "r/x:y", "restartCount": 0, "state": {"running": {}}}
        ]
        pod = {
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}},
            "status": {"phase": "Running", "conditions": conditions,
                       "containerStatuses": containers},
        }  # fmt: skip
        self.objects.append(pod)
        return pod

    def container(self, pod: dict[str, Any], **status: Any) -> None:
        """Change the status of a pod's container; it is not ready."""
        pod["status"]["containerStatuses"][0] |= status
        pod["status"]["conditions"][1]["status"] = "False"

    def waits(self, pod: dict[str, Any], reason: str, message: str = "") -> None:
        self.container(pod, state={"waiting": {"reason": reason, "message": message}})

    def no_node(self, message: str) -> None:
        self.learner["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": message}],
        }

    def event(self, kind: str, name: str, reason: str, message: str) -> None:
        self.events.append(
            {"involvedObject": {"kind": kind, "name": name}, "reason": reason,
             "message": message, "lastTimestamp": NOW}
        )  # fmt: skip

    def write(self) -> None:
        for item in self.objects:
            if item["kind"] == "ConfigMap" and item["metadata"]["name"] == "pong-state":
                item["data"] = self.state
        status = {
            "over": None, "stop_reason": None, "numbers": {"sessions": self.sessions},
            "counters": {"env_frames": 1}, "state": "training", "waiting_for": None,
        }  # fmt: skip
        others = [
            {"metadata": {"namespace": "rl", "labels": {"app.kubernetes.io/instance": "pong"}}}
        ]
        files = {
            "objects": json.dumps({"items": self.objects}), "log": self.log,
            "events": json.dumps({"items": self.events}), "status": json.dumps(status),
            "missing": self.missing or "nothing", "forbidden": self.forbidden,
            "namespace": self.namespace, "others": json.dumps({"items": others}),
        }  # fmt: skip
        for name, text in files.items():
            (self.folder / name).write_text(text)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    file = tmp_path / "bin" / "kubectl"
    file.parent.mkdir()
    file.write_text(KUBECTL.format(folder=tmp_path))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")
    return Scene(tmp_path)


def check(scene: Scene, *more: str) -> int:
    scene.write()
    return main(["check", "release", "pong", "-n", "rl", *more])


def test_a_release_that_plays_has_no_other_line(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(scene) == 0
    out = capsys.readouterr().out
    assert "pong works: 0 FAIL, 0 warn" in out
    assert "3 of 3 pods ready" in out
    assert "2 groups of environments play" in out
    assert check(scene, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"]


@pytest.mark.parametrize("has_pod", [True, False])
def test_the_controller_of_a_set_that_never_came_is_told(
    scene: Scene, capsys: pytest.CaptureFixture[str], has_pod: bool
) -> None:
    labels = {"app.kubernetes.io/component": "controller"}
    template = {"spec": {"containers": [{"name": "controller"}]}}
    deployment = {
        "kind": "Deployment", "metadata": {"name": "lr-set", "labels": labels},
        "spec": {"replicas": 1, "template": template}, "status": {},
    }  # fmt: skip
    scene.objects = [deployment]
    if has_pod:
        scene.waits(scene._pod("lr-set-7f-abc"), "ErrImagePull", "not found")
        told = ["lr-set-7f-abc does not start: ErrImagePull of r/x:y", "-> push the image"]
    else:
        scene.event("ReplicaSet", "lr-set-7f", "FailedCreate", "exceeded quota: pods")
        told = ["ReplicaSet lr-set-7f cannot make its pods", "-> lower the number"]
    scene.write()
    assert main(["check", "release", "lr", "-n", "rl"]) == ExitCode.DEPLOY
    out = capsys.readouterr().out
    for words in (*told, "lr does not work: 1 FAIL"):
        assert words in out


def quota(scene: Scene) -> None:
    scene.objects.remove(scene.cost)
    words = 'pods "x" is forbidden: exceeded quota: cores'
    scene.event("ReplicaSet", "pong-cost-7ffb87d656", "FailedCreate", words)


def no_node(scene: Scene) -> None:
    scene.no_node("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")


def image(scene: Scene) -> None:
    scene.waits(scene.actor, "ImagePullBackOff", "Back-off")


def no_secret(scene: Scene) -> None:
    scene.waits(scene.learner, "ContainerCreating")
    scene.event("Pod", "pong-learner-0", "FailedMount", MISSING.format("mine"))


def no_tokens(scene: Scene) -> None:
    scene.missing = "secret/pong-auth"


def no_class(scene: Scene) -> None:
    claim = {
        "kind": "PersistentVolumeClaim", "metadata": {"name": "runs-pong-learner-0"},
        "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"},
    }  # fmt: skip
    scene.objects.append(claim)
    words = 'storageclass.storage.k8s.io "fast" not found'
    scene.event("PersistentVolumeClaim", "runs-pong-learner-0", "ProvisioningFailed", words)


def fatal(scene: Scene) -> None:
    ended = {"exitCode": 12, "message": "seedbed: no GPU\n"}
    scene.waits(scene.learner, "CrashLoopBackOff")
    scene.learner["status"]["containerStatuses"][0]["lastState"] = {"terminated": ended}


def memory(scene: Scene) -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    scene.container(scene.learner, lastState={"terminated": ended})


def no_dns(scene: Scene) -> None:
    scene.sessions = 0
    scene.log = "W loop: a/0: UNAVAILABLE: DNS server refused query; trying again in 5.0 s\n"


def denied(scene: Scene) -> None:
    scene.sessions = 0
    scene.log = "W loop: a/0: UNAVAILABLE: failed to connect: timed out; trying again in 5.0 s\n"


def no_rights(scene: Scene) -> None:
    scene.log = "W seedbed.services.cost.meter: pods: ForbiddenException: (403) Reason\n"


def silent(scene: Scene) -> None:
    scene.state["unixTime"] = f"{time.time() - 900:.0f}"


def no_last_resort(scene: Scene) -> None:
    del scene.state["lastResort"]


@pytest.mark.parametrize(
    ("broken", "words", "code"),
    [
        (quota, ["cannot make its pods", "exceeded quota", "-> lower the number"], 50),
        (no_node, ["pong-learner-0 waits for a node", "nvidia.com/gpu", "-> ask for less"], 50),
        (image, ["ImagePullBackOff of r/x:y", "-> push the image"], 50),
        (no_secret, ["waits for Secret mine, which is not there", "-> make the Secret"], 50),
        (no_tokens, ["Secret pong-auth", "-> the meter makes tokens"], 50),
        (no_class, ["claim runs-pong-learner-0 of the StorageClass fast", "not found"], 50),
        (fatal, ["learner of pong-learner-0 ended with exit code 12 (BACKEND", "no GPU"], 12),
        (memory, ["killed for want of memory", "resources.limits.memory"], 50),
        (no_dns, ["does not reach the learner: UNAVAILABLE: DNS", "-> let the actors"], 30),
        (denied, ["timed out", "-> let the actors reach the learner's port 8470"], 30),
        (no_rights, ["the API server refuses the meter: pods", "-> helm upgrade"], 50),
        (silent, ["the meter has saved nothing for 15 min"], 50),
        (no_last_resort, ["CronJob pong-last-resort was made", "has not worked since"], 50),
    ],
)
def test_what_is_broken_is_named_with_what_to_do(
    scene: Scene, capsys: pytest.CaptureFixture[str], broken: Any, words: list[str], code: int
) -> None:
    broken(scene)
    assert check(scene) == code
    out = capsys.readouterr().out
    for word in words:
        assert word in out
    assert out.splitlines()[-1].startswith("pong does not work: ")


def test_a_pause_an_end_and_what_is_over_fail_nothing(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.state["paused"] = "exit code 10 (CONFIG) of pong-learner-0"
    ended = {"exitCode": 1, "message": "seedbed: a defect\n"}
    scene.actor["status"]["containerStatuses"][0] |= {
        "restartCount": 2, "lastState": {"terminated": ended},
    }  # fmt: skip
    scene.event("Pod", "pong-learner-0", "FailedMount", MISSING.format("pong-auth"))
    assert check(scene) == 0
    out = capsys.readouterr().out
    assert "warn  state" in out
    assert "paused: exit code 10 (CONFIG) of pong-learner-0" in out
    assert "actor of pong-actor-7f-a has been restarted 2 times" in out
    assert "waits for Secret" not in out, "its pod has begun since"
    del scene.state["paused"]
    scene.state["finished"] = "stop.env_frames: 10 of 10"
    assert check(scene) == 0
    assert "finished: stop.env_frames: 10 of 10" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "words"),
    [({"meterLeftAt": "x"}, "the meter has left after the end"), ({}, "no pod of the meter")],
)
def test_a_release_that_nobody_ends_does_not_work(
    scene: Scene, capsys: pytest.CaptureFixture[str], state: dict[str, str], words: str
) -> None:
    scene.objects.remove(scene.cost)
    for item in scene.objects:
        if item["kind"] == "Deployment" and item["metadata"]["name"] == "pong-cost":
            item["spec"]["replicas"] = 0
    scene.state |= state
    assert check(scene) == ExitCode.DEPLOY
    assert f"{words}: nobody counts the bill" in " ".join(capsys.readouterr().out.split())
    scene.state["finished"] = "stop.env_frames: 10 of 10"
    assert check(scene) == 0


def test_what_may_not_be_read_is_told(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    words = 'User "bob" cannot list resource "configmaps" in API group "" in the namespace "rl"'
    scene.forbidden = f"Error from server (Forbidden): configmaps is forbidden: {words}\n"
    scene.objects = [item for item in scene.objects if item["kind"] != "ConfigMap"]
    assert check(scene) == 0
    out = capsys.readouterr().out
    assert "warn  rights" in out
    assert "may not read configmaps in rl" in out
    scene.objects, scene.forbidden = [], scene.forbidden.replace("configmaps", "pods")
    assert check(scene) == ExitCode.CONFIG
    assert "this account may not list pods" in capsys.readouterr().err


def test_no_such_release_is_told_with_those_that_are_there(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.objects = []
    scene.write()
    assert main(["check", "release", "pnog", "-n", "rl"]) == ExitCode.CONFIG
    assert "no release pnog in namespace rl: there are pong" in capsys.readouterr().err
    assert main(["check", "release", "pong", "-n", "other"]) == ExitCode.CONFIG
    assert "it is in rl: give -n rl" in capsys.readouterr().err
    scene.namespace = 'Error from server (NotFound): namespaces "other" not found'
    scene.write()
    assert main(["check", "release", "pong", "-n", "other"]) == ExitCode.CONFIG
    assert "there is no namespace other" in capsys.readouterr().err
