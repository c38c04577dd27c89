"""Break real runs, and store the series from which the alerts are tested.

`python -m tools.break_runs [NAME ...]` starts learners, actors and meters on this machine, fills a
volume, raises the learning rate to 1e6, kills a meter and so on, reads every `/metrics` each 15
seconds as Prometheus does, and writes `k8s/rules/runs/NAME.json`. All runs go on at once, for 19
minutes. The API server behind a meter is a file that the script writes; ended containers are
started again with the back-off of a kubelet. The full volume is a tmpfs, which needs root.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import yaml
from prometheus_client.parser import text_string_to_metric_families

from seedbed.runtime.http import MetricsServer
from seedbed.services.cost.learners import read_learner
from seedbed.services.cost.meter import CostMeter, Goal
from seedbed.services.cost.prices import PriceList, Settings
from tests.services.cost.test_usage import container, pod, thing
from tests.support.processes import free_port

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "k8s" / "rules" / "runs"
SCRAPE_S, SCRAPES = 15.0, 76
# A kubelet starts a container again after 10 s, then after twice as long each time, up to 300 s.
BACK_OFF_S, LONGEST_BACK_OFF_S = 10.0, 300.0
EXPERIMENT: dict[str, Any] = {
    "name": "pong",
    "environment": {"id": "tools.break_runs:slow_cartpole"},
    "actor": {"envs_per_group": 4, "connect_timeout_s": 600},
    "learner": {
        "network": "mlp", "frame_stack": 1, "unroll_length": 8, "batch_size": 4,
        "checkpoint": {"every_s": 30},
    },
    "evaluation": {"at_end": False},
    "logging": {"interval_s": 5},
}  # fmt: skip
DQN = {
    "agent": "dqn",
    "learner": {**EXPERIMENT["learner"], "unroll_length": 1, "replay": {"min_size": 200}},
}


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of 50 steps a second, which leaves the machine to others."""

    def step(self, action: Any) -> Any:
        """Step after a while."""
        time.sleep(0.02)
        return self.env.step(action)


def slow_cartpole() -> gymnasium.Env[Any, Any]:
    """Return the environment of the runs."""
    return Slow(gymnasium.make("CartPole-v1"))


class Container:
    """The container of a pod: a process that is started again after each end.

    Attributes:
        restarts: Starts after the first.
        exit_code: Code of the newest end; None before.
        wanted: Whether the workload asks for the pod.
    """

    def __init__(self, component: str, port: int, command: list[str], log: Path) -> None:
        self.component, self.port, self._command, self._log = component, port, command, log
        self.restarts = -1
        self.exit_code: int | None = None
        self.wanted = True
        self._popen: subprocess.Popen[bytes] | None = None
        self._start_at = 0.0

    def keep(self) -> None:
        """Start the process where it is due, or note its end."""
        if self._popen is not None and self._popen.poll() is not None:
            code = self._popen.returncode
            self.exit_code, self._popen = code if code >= 0 else 128 - code, None
            wait_s = min(BACK_OFF_S * 2**self.restarts, LONGEST_BACK_OFF_S)
            self._start_at = time.monotonic() + wait_s
        if self.wanted and self._popen is None and time.monotonic() >= self._start_at:
            self.restarts += 1
            with self._log.open("ab") as log:
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", *self._command], stdout=log, stderr=log,
                    env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
                )  # fmt: skip

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


class Run:
    """A release: a learner, an actor and a meter, and their series.

    Args:
        name: Name of the file of its series.
        events: What is done to the run, by the number of the scrape.
        changes: Keys of the experiment, over `EXPERIMENT`.
    """

    def __init__(self, name: str, events: dict[int, Callable[[Run], None]], **changes: Any) -> None:
        self.name, self.events = name, events
        self.series: dict[str, dict[int, str]] = defaultdict(dict)
        self.experiment = {**EXPERIMENT, **changes}

    def start(self, folder: Path) -> None:
        """Write the experiment, and make the containers."""
        self.folder = folder
        (folder / "run").mkdir(parents=True)
        grpc, ports = free_port(), {name: free_port() for name in ("learner", "actor", "cost")}
        if self.name == "full-volume":
            mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder / "run")]
            subprocess.run(mount, check=True)
        learner = {**self.experiment["learner"], "metrics_port": ports["learner"]}
        actor = {**self.experiment["actor"], "metrics_port": ports["actor"]}
        file = folder / "experiment.yaml"
        made = {**self.experiment, "learner": learner, "actor": actor}
        made["cost"] = {"meter": f"http://127.0.0.1:{ports['cost']}/status"}
        file.write_text(yaml.safe_dump(made, sort_keys=False))
        budget = self.experiment.get("stop", {}).get("dollars", 0)
        seedbed = "seedbed.cli.main"
        commands = {
            "learner": [seedbed, "learner", str(file), "--run-dir", str(folder / "run" / "pong"),
                        "--listen", f"127.0.0.1:{grpc}", "--linger"],
            "actor": [seedbed, "actor", str(file), "--learner", f"127.0.0.1:{grpc}"],
            "cost": ["tools.break_runs", "meter", str(folder), str(ports["learner"]),
                     str(ports["cost"]), str(budget)],
        }  # fmt: skip
        self.containers = {
            name: Container(name, ports[name], command, folder / f"{name}.log")
            for name, command in commands.items()
        }

    def keep(self) -> None:
        """Keep the containers, and write what the meter is told of them."""
        for item in self.containers.values():
            item.keep()
        told = {
            name: [item.wanted, max(0, item.restarts), item.exit_code]
            for name, item in self.containers.items()
        }
        fresh = self.folder / "pods.fresh"
        fresh.write_text(json.dumps(told))
        fresh.replace(self.folder / "pods.json")

    def scrape(self, number: int) -> None:
        """Read every container that has a pod, after the event of this scrape."""
        if number in self.events:
            self.events[number](self)
        for component, item in self.containers.items():
            if not item.wanted and component != "cost":
                continue
            labels = {"namespace": "rl", "experiment": "pong", "role": component}
            labels["pod"] = f"pong-{component}-0"
            text = item.scrape()
            self._add(number, "up", labels, str(int(text is not None)))
            for family in text_string_to_metric_families(text or ""):
                for sample in family.samples:
                    if not sample.name.endswith("_bucket") or "policy_lag" in sample.name:
                        # As Prometheus does without `honor_labels`.
                        own = {f"exported_{k}" if k in labels else k: v
                               for k, v in sample.labels.items()}  # fmt: skip
                        self._add(number, sample.name, {**labels, **own}, f"{sample.value:.6g}")

    def _add(self, number: int, name: str, labels: dict[str, str], value: str) -> None:
        inside = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
        self.series[f"{name}{{{inside}}}"][number] = value.replace("nan", "NaN")

    def close(self) -> None:
        """End the processes."""
        for item in self.containers.values():
            item.end(signal.SIGKILL)
        if self.name == "full-volume":
            subprocess.run(["umount", "-l", str(self.folder / "run")], check=False)

    def store(self) -> None:
        """Write the series that the rules read, as promtool takes them."""
        text = (ROOT / "k8s" / "rules" / "seedbed.yaml").read_text()
        names = {"up", *re.findall(r"seedbed_\w+", text)}
        kept = {
            name: written([values.get(i) for i in range(SCRAPES)])
            for name, values in sorted(self.series.items())
            if name.partition("{")[0] in names
        }
        RUNS.mkdir(exist_ok=True)
        (RUNS / f"{self.name}.json").write_text(json.dumps(kept, indent=0) + "\n")


def written(values: list[str | None]) -> str:
    """Return a series in promtool's notation: `7x3` is four times 7.

    A sample that is missing after one that is there makes the series stale, as in Prometheus.
    """
    parts: list[list[Any]] = []
    there = False
    for value in values:
        now = value or ("stale" if there else "_")
        there = value is not None
        if parts and parts[-1][0] == now:
            parts[-1][1] += 1
        else:
            parts.append([now, 1])
    return " ".join(_repeated(value, times) for value, times in parts)


def _repeated(value: str, times: int) -> str:
    if times == 1:
        return value
    if value == "_":
        return f"_x{times}"
    return f"{value}+0x{times - 1}" if value == "NaN" else f"{value}x{times - 1}"


class FileCluster:
    """The calls of the meter to the API server, answered from `pods.json`."""

    nodes_readable = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: dict[str, str | None] = {}

    def _told(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self._folder / "pods.json").read_text())
        return told

    def pods(self) -> list[Any]:
        """Return the pods that are wanted."""
        return [made_pod(name, *state) for name, (wanted, *state) in self._told().items() if wanted]

    def wanted_replicas(self) -> dict[str, int]:
        """Return 1 or 0 of each workload."""
        return {name: int(state[0]) for name, state in self._told().items() if name != "cost"}

    def node(self, name: str) -> None:
        """Return no node."""

    def state(self) -> dict[str, str | None]:
        """Return the data of the ConfigMap."""
        return self._state

    def save_state(self, state: dict[str, str | None]) -> None:
        """Change the data of the ConfigMap."""
        self._state |= state

    def claims(self) -> list[Any]:
        """Return no volumes."""
        return []

    def scale(self, component: str, replicas: int) -> None:
        """Do nothing: what ends here is kept up by somebody else."""


def made_pod(component: str, restarts: int, exit_code: int | None) -> Any:
    """Return a `V1Pod` of one vCPU."""
    made = pod([container({"cpu": "1", "memory": "1Gi"})])
    made.metadata.name = f"pong-{component}-0"
    made.metadata.labels["app.kubernetes.io/component"] = component
    status: dict[str, Any] = {"name": component, "image": "", "imageID": "", "ready": True}
    status["restartCount"] = restarts
    if exit_code is not None:
        status["lastState"] = {"terminated": {"exitCode": exit_code}}
    made.status.container_statuses = [thing("V1ContainerStatus", status)]
    return made


def run_meter(folder: str, learner: str, port: str, budget: str) -> None:
    """Run a meter until it is killed."""
    read: Any = partial(read_learner, f"http://127.0.0.1:{learner}/status")
    cluster: Any = FileCluster(Path(folder))
    # A dollar an hour and a vCPU.
    prices = {"families": {"x": {"cpu": 1.0, "memory_gib": 0.0, "spot": 0.25}}}
    settings = Settings.model_validate({"prices": prices, "defaultFamily": "x"})
    meter = CostMeter(cluster, PriceList(settings), [read], Goal(budget=float(budget)))
    MetricsServer(int(port), meter.registry, status=meter.status)
    meter.run(threading.Event())


def park(run: Run) -> None:
    """Take learner and actor to zero, as somebody does with `kubectl scale`."""
    for component in ("actor", "learner"):
        run.containers[component].end()


def fill(run: Run) -> None:
    """Take all that is free on the volume of the run."""
    with suppress(OSError), (run.folder / "run" / "filler").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))


RUNS_MADE = (
    Run("healthy", {}),
    Run("replay", {}, **DQN),
    Run("parked", {24: park}),
    Run("meter-killed", {24: lambda run: run.containers["cost"].end(signal.SIGKILL)}),
    Run("full-volume", {12: fill}),
    # With `relu` the first update leaves no unit alive, and the loss finite.
    Run("diverged", {}, learner={
        **EXPERIMENT["learner"], "max_skipped_updates": 2,
        "network_options": {"activation": "linear"},
        "optimizer": {"learning_rate": 1e6, "max_gradient_norm": 0},
    }),
    # A vCPU is a dollar an hour and there are three, so that the budget is spent after 6 minutes.
    # Nothing goes to zero then, as where somebody scales up again.
    Run("budget", {}, stop={"dollars": 0.3, "env_frames": 10_000_000}),
)  # fmt: skip


def main() -> int:
    """Make the runs that are named, or all."""
    if sys.argv[1:2] == ["meter"]:
        run_meter(*sys.argv[2:])
        return 0
    chosen = [run for run in RUNS_MADE if not sys.argv[1:] or run.name in sys.argv[1:]]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for run in chosen:
                run.start(Path(folder) / run.name)
            begin = time.monotonic()
            for number in range(SCRAPES):
                while time.monotonic() < begin + number * SCRAPE_S:
                    for run in chosen:
                        run.keep()
                    time.sleep(1)
                for run in chosen:
                    run.scrape(number)
        finally:
            for run in chosen:
                run.close()
        for run in chosen:
            run.store()
    return 0


if __name__ == "__main__":
    sys.exit(main())
