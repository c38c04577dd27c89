"""What stands around a broken run: containers that a kubelet restarts, an API server in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from seedbed.runtime.http import MetricsServer
from seedbed.services.cost.learners import read_learner
from seedbed.services.cost.meter import CostMeter, Goal
from seedbed.services.cost.prices import PriceList, Settings
from tests.services.cost.test_usage import container, pod, thing
from tests.support.source_imports import ROOT

# A kubelet starts a container again after 10 s, then after twice as long each time, up to 300 s.
BACK_OFF_S, LONGEST_BACK_OFF_S = 10.0, 300.0


class Container:
    """The container of a pod: a process that is started again after each end.

    Attributes:
        restarts: Starts after the first.
        exit_code: Code of the newest end; None before.
        wanted: Whether the workload asks for the pod.
        has_node: Whether the pod was scheduled.
    """

    def __init__(self, component: str, port: int, command: list[str], log: Path) -> None:
        self.component, self.port, self._command, self._log = component, port, command, log
        self.restarts = -1
        self.exit_code: int | None = None
        self.wanted = True
        self.has_node = True
        self._popen: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    def keep(self) -> None:
        """Start the process where it is due, or note its end."""
        if self._popen is not None and self._popen.poll() is not None:
            code = self._popen.returncode
            self.exit_code, self._popen = code if code >= 0 else 128 - code, None
            wait_s = min(BACK_OFF_S * 2**self.restarts, LONGEST_BACK_OFF_S)
            self._start_at = time.monotonic() + wait_s
        if self.is_there and self._popen is None and time.monotonic() >= self._start_at:
            self.restarts += 1
            with self._log.open("ab") as log:
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", *self._command], stdout=log, stderr=log,
                    env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
                )  # fmt: skip

    @property
    def is_there(self) -> bool:
        """Whether there is a pod that can be scraped."""
        return self.wanted and self.has_node

    def send(self, number: int) -> None:
        """Send a signal to the process and its children, of which the kubelet knows nothing."""
        if self._popen is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the process, and start none after it."""
        self.wanted = False
        if self._popen is not None:
            self._popen.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen = None

    def scrape(self) -> str | None:
        """Return the text of /metrics; None while nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", None, 5) as answer:
                return str(answer.read().decode())
        except OSError:
            return None


class FileCluster:
    """The calls of the meter to the API server, answered from `pods.json`."""

    nodes_readable = False
    host_restarts = 0
    chosen_actors: int | None = None
    bill = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: dict[str, str | None] = {}

    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self._folder / "pods.json").read_text())
        return told

    def pods(self) -> list[Any]:
        """Return the pods that are wanted."""
        return [
            made_pod(name, *state)
            for name, (_, is_there, *state) in self._told().items()
            if is_there
        ]

    def wanted_replicas(self) -> dict[str, int]:
        """Return the number that each workload asks for."""
        wanted: Counter[str] = Counter()
        for name, state in self._told().items():
            wanted[name.partition("-")[0]] += int(state[0])
        del wanted["cost"]
        return dict(wanted)

    def node(self, name: str) -> None:
        """Return no node."""

    def state(self) -> dict[str, str | None]:
        """Return the data of the ConfigMap."""
        alive = (self._folder / "last-resort").exists()
        return {**self._state, "lastResort": f"{time.time():.0f}"} if alive else self._state

    def save_state(self, state: dict[str, str | None]) -> None:
        """Change the data of the ConfigMap."""
        self._state |= state

    def claims(self) -> list[Any]:
        """Return no volumes."""
        return []

    def scale(self, component: str, replicas: int) -> None:
        """Do nothing: what ends here is kept up by somebody else."""


def made_pod(name: str, restarts: int, exit_code: int | None) -> Any:
    """Return a `V1Pod` of one vCPU."""
    made = pod([container({"cpu": "1", "memory": "1Gi"})])
    component, _, rank = name.partition("-")
    made.metadata.name = f"pong-{component}-{rank or 0}"
    made.metadata.labels["app.kubernetes.io/component"] = component
    status: dict[str, Any] = {"name": component, "image": "", "imageID": "", "ready": True}
    status["restartCount"] = restarts
    if exit_code is not None:
        status["lastState"] = {"terminated": {"exitCode": exit_code}}
    made.status.container_statuses = [thing("V1ContainerStatus", status)]
    return made


def broken_meter(folder: str, learner: str, budget: str, family: str) -> CostMeter:
    """Return the meter of a run; a vCPU of the family `x` costs a dollar an hour."""
    read: Any = partial(read_learner, f"http://127.0.0.1:{learner}/status")
    cluster: Any = FileCluster(Path(folder))
    prices = {"families": {"x": {"cpu": 1.0, "memory_gib": 0.0, "spot": 0.25}}}
    settings = Settings.model_validate({"prices": prices, "defaultFamily": family})
    return CostMeter(cluster, PriceList(settings), [read], Goal(budget=float(budget)))


def run_meter(folder: str, learner: str, port: str, budget: str, family: str) -> None:
    """Run a meter until it is killed."""
    meter = broken_meter(folder, learner, budget, family)
    MetricsServer(int(port), meter.registry, status=meter.status)
    meter.run(threading.Event())


if __name__ == "__main__":
    run_meter(*sys.argv[1:])
