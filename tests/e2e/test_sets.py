"""A set of runs on a real cluster under one budget, while its parts are killed.

RUNS, DOLLARS, KILL and SEED come from the environment: `make e2e-set RUNS=8 DOLLARS=0.02`. Alone on
its node, which it taints.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.main import main
from tests.e2e.release import command, until, values

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_set, pytest.mark.timeout(1800)]

RUNS = int(os.environ.get("RUNS", "4"))
DOLLARS = float(os.environ.get("DOLLARS", "0.012"))
KILLS = [kill for kill in os.environ.get("KILL", "controller,learner,node").split(",") if kill]
SEED = int(os.environ.get("SEED", "1"))
NAME = "lab"
LEARNERS = 2
# Of a CPU: with it a run costs half a cent, and the bound ends the set before its last run.
DOLLARS_PER_CPU_HOUR = 1.5
FRAMES = 30_000


class Lives:
    """The pods of a namespace from their starts to their ends, as the API server tells them."""

    def __init__(self, namespace: str) -> None:
        command_ = ["kubectl", "-n", namespace, "get", "pods", "--watch", "--output-watch-events",
                    "-o", "json"]  # fmt: skip
        self._process = subprocess.Popen(command_, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, float] = {}
        self.most = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        decoder, text = json.JSONDecoder(), ""
        for line in self._process.stdout:
            text += line
            try:
                event, _ = decoder.raw_decode(text)
            except ValueError:
                continue
            text = ""
            self._note(event["type"], event["object"])

    def _note(self, kind: str, pod: dict[str, Any]) -> None:
        with self._lock:
            uid = pod["metadata"]["uid"]
            self._pods[uid] = pod
            if kind == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
                self._ends.setdefault(uid, time.time())
            learners = [
                self._label(x, "instance")
                for key, x in self._pods.items()
                if key not in self._ends and self._label(x, "component") == "learner"
            ]
            self.most = max(self.most, len(set(learners)))

    @staticmethod
    def _label(pod: dict[str, Any], key: str) -> str:
        return str(pod["metadata"]["labels"].get(f"app.kubernetes.io/{key}", ""))

    def close(self) -> None:
        self._process.terminate()

    def dollars(self, runs: bool = True) -> float:
        """What the pods of the runs have cost until now."""
        total = 0.0
        with self._lock:
            for uid, pod in self._pods.items():
                if self._label(pod, "name") != "seedbed" or "startTime" not in pod["status"]:
                    continue
                begun = datetime.fromisoformat(pod["status"]["startTime"]).timestamp()
                total += _cpus(pod) * max(0.0, self._ends.get(uid, time.time()) - begun)
        return total / 3600 * DOLLARS_PER_CPU_HOUR

    def rate(self) -> float:
        """The most that all pods at the same time may cost an hour."""
        with self._lock:
            each = [
                _cpus(pod)
                for pod in self._pods.values()
                if self._label(pod, "component") in ("learner", "actor", "cost")
            ]
        return LEARNERS * (3 * max(each)) * DOLLARS_PER_CPU_HOUR


def _cpus(pod: dict[str, Any]) -> float:
    asked = [c["resources"]["requests"]["cpu"] for c in pod["spec"]["containers"]]
    return sum(float(x[:-1]) / 1000 if x.endswith("m") else float(x) for x in asked)


@pytest.fixture
def lives(namespace: str) -> Iterator[Lives]:
    found = Lives(namespace)
    yield found
    found.close()


def deploy(namespace: str, folder: Path, *more: str) -> int:
    given = values()
    experiment = given.pop("experiment")
    # Trains as fast as the node lets it, to an end of its own.
    experiment["learner"].pop("inference")
    experiment["agent"] = "vtrace"  # a quarter of the updates: frames are what is waited for
    experiment["stop"] = {"env_frames": FRAMES}
    experiment["evaluation"] = {"episodes": 2}
    prices = {
        "families": {"n2": {"cpu": DOLLARS_PER_CPU_HOUR, "memory_gib": 0.0, "spot": 1.0}},
        "volumes": {"standard": 0.0},
    }
    given["cost"] = {"prices": prices}
    profile, file = folder / "small.yaml", folder / "sweep.yaml"
    profile.write_text(yaml.safe_dump(given))
    (folder / "cartpole.yaml").write_text(yaml.safe_dump({"name": "cartpole", **experiment}))
    rates = [round(1e-3 * (1 + at), 4) for at in range(RUNS // 2)]
    sweep = {
        "name": NAME,
        "experiment": "cartpole.yaml",
        "axes": {"learner.optimizer.learning_rate": rates},
        "seeds": 2,
        "budget": {"dollars": DOLLARS},
    }
    file.write_text(yaml.safe_dump(sweep))
    tag = os.environ.get("SEEDBED_E2E_TAG", "dev")
    options = ("-n", namespace, "--profile", str(profile), "--max-learners", str(LEARNERS))
    return main(["deploy", str(file), *options, "--set", f"set.image.tag={tag}", *more])


def rows(namespace: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    if main(["list", NAME, "-n", namespace, "--json"]):
        return {}
    return {row["run"]: row for row in json.loads(capsys.readouterr().out)}


def frames(found: dict[str, dict[str, Any]]) -> int:
    return sum(int(row["env_frames"] or 0) for row in found.values())


@contextmanager
def tainted() -> Iterator[None]:
    """The node takes no pods, and has thrown out those that were there."""
    command("kubectl", "taint", "nodes", "--all", "seedbed-test=gone:NoExecute", "--overwrite")
    try:
        yield
    finally:
        command("kubectl", "taint", "nodes", "--all", "seedbed-test-", check=False)


def kill(what: str, namespace: str) -> None:
    """Kill a part without a word."""
    now = ("--grace-period=0", "--force", "--wait=false")
    select = {
        "controller": "app.kubernetes.io/component=controller",
        "learner": "app.kubernetes.io/component=learner",
        "node": "",
    }[what]
    which = ("-l", select) if select else ("--all",)
    if what != "node":
        command("kubectl", "-n", namespace, "delete", "pods", *which, *now)
        return
    with tainted():
        command("kubectl", "-n", namespace, "delete", "pods", *which, *now)
        time.sleep(20)  # so long the node is gone: the fault, not a wait for something


def test_runs_end_under_one_budget_while_parts_are_killed(
    namespace: str, tmp_path: Path, lives: Lives, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(SEED)
    assert deploy(namespace, tmp_path) == 0
    # Each kill at a random moment of the set's frames.
    moments = sorted(draw.uniform(0.05, 0.7) * RUNS * FRAMES for _ in KILLS)
    for moment, what in zip(moments, draw.sample(KILLS, len(KILLS)), strict=True):
        until(lambda at=moment: frames(rows(namespace, capsys)) >= at or is_over(namespace, capsys),
              f"{moment:.0f} frames")  # fmt: skip
        kill(what, namespace)
    until(lambda: is_over(namespace, capsys), "the set is over", within_s=1200)
    pods = ("kubectl", "-n", namespace, "get", "pods", "-o=name")
    of_runs = ("-l", "app.kubernetes.io/name=seedbed")
    until(lambda: not command(*pods, *of_runs), "no pod of a run is left")

    found = rows(namespace, capsys)
    assert len(found) == RUNS
    finished = [name for name, row in found.items() if row["state"] == "finished"]
    assert {row["state"] for row in found.values()} <= {"finished", "waiting"}
    state = json.loads(command("kubectl", "-n", namespace, "get", "configmap",
                               f"{NAME}-set-state", "-o=json"))["data"]  # fmt: skip
    assert len(finished) == RUNS or "budget.dollars" in state["holds"], state
    assert frames(found) > 0, state  # on a slow machine the bound may end all of them
    told, true = float(state["dollars"]), lives.dollars()
    grace = lives.rate() / 60
    assert true <= DOLLARS + grace, f"{true} of {DOLLARS}, with {grace}"
    assert abs(told - true) <= 0.1 * true + grace, f"told {told}, by the pods' lives {true}"
    assert lives.most <= LEARNERS

    # The rows are at home: they compare when no pod of a run is left.
    if not finished:
        return
    capsys.readouterr()
    assert main(["compare", NAME, "-n", namespace, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert sum(len(group["runs"]) for group in compared["groups"]) >= len(finished)


def is_over(namespace: str, capsys: pytest.CaptureFixture[str]) -> bool:
    found = rows(namespace, capsys)
    states = {row["state"] for row in found.values()}
    if found and states == {"finished"}:
        return True
    text = command("kubectl", "-n", namespace, "get", "configmap", f"{NAME}-set-state", "-o=json")
    holds = json.loads(text).get("data", {}).get("holds", "")
    return "budget.dollars" in holds and states <= {"finished", "waiting"}
