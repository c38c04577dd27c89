"""Break real runs, and store the series from which the alerts are tested.

`python -m tests.observability.break_runs [NAME ...]` starts learners, actors and meters on this
machine, fills a volume, raises the learning rate to 1e6, kills a meter and so on, reads every
`/metrics` each 15 seconds as Prometheus does, and writes `tests/fixtures/alert_runs/NAME.json`. All
runs go on at once, for 19 minutes, and those of slow alerts for 35, read each 30 seconds. The API
server behind a meter is a file that the script writes; ended containers are started again with the
back-off of a kubelet. The full volume is a tmpfs and the hanging one a frozen ext4, which need
root.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.observability.break_events import (
    damage,
    deny,
    fill,
    freeze,
    kill,
    no_node,
    park,
    short_certificate,
    wait,
)
from tests.observability.broken_pods import Container
from tests.support.processes import free_port
from tests.support.source_imports import ROOT

RUNS = ROOT / "tests" / "fixtures" / "alert_runs"
RULES = ROOT / "helm" / "seedbed-platform" / "files" / "rules.yaml"
# Minutes of a run, and of one whose alert takes half an hour.
USUAL, LONG = 19, 35
EXPERIMENT: dict[str, Any] = {
    "name": "pong",
    "environment": {"id": "tests.observability.break_runs:slow_cartpole"},
    "agent": "vtrace",
    "actor": {"envs_per_group": 4, "connect_timeout_s": 600},
    "learner": {
        "network": "mlp", "frame_stack": 1, "unroll_length": 8, "batch_size": 4,
        "checkpoint": {"every_s": 30},
    },
    "evaluation": {"at_end": False},
    "logging": {"interval_s": 5},
}  # fmt: skip
WAITING = "tests.observability.broken_agents:Waiting"
DQN: dict[str, Any] = {
    "agent": "dqn",
    "learner": {**EXPERIMENT["learner"], "unroll_length": 1, "replay": {"min_size": 200}},
}


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of 50 steps a second, which leaves the machine to others.

    Args:
        env: The environment.
        file: The seconds of a step, where it is there.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], file: str) -> None:
        super().__init__(env)
        self._file = Path(file)

    def step(self, action: Any) -> Any:
        """Step after a while."""
        time.sleep(float(self._file.read_text()) if self._file.exists() else 0.02)
        return self.env.step(action)


def slow_cartpole(file: str) -> gymnasium.Env[Any, Any]:
    """Return the environment of the runs."""
    return Slow(gymnasium.make("CartPole-v1"), file)


class Run:
    """A release: a learner, an actor and a meter, and their series.

    Args:
        name: Name of the file of its series.
        events: What is done to the run, by the number of the scrape.
        containers: Names of its containers; `learner-1` and `replay-0` are of a component too.
        family: Family of the nodes that the meter prices.
        minutes: How long it goes on.
        options: Arguments of one container more than of the others, by its name.
        changes: Keys of the experiment, over `EXPERIMENT`.
    """

    def __init__(
        self,
        name: str,
        events: dict[int, Callable[[Run], None]],
        containers: tuple[str, ...] = ("learner", "actor", "cost"),
        family: str = "x",
        minutes: int = USUAL,
        options: dict[str, list[str]] | None = None,
        **changes: Any,
    ) -> None:
        self.is_denied = False
        self.name, self.events, self.names, self.family = name, events, containers, family
        self.series: dict[str, dict[int, str]] = defaultdict(dict)
        self.minutes, self._scraped = minutes, 0
        self.scrape_s = 15.0 if minutes == USUAL else 30.0
        self.scrapes = int(minutes * 60 / self.scrape_s)
        self.options = options or {}
        self.experiment = {**EXPERIMENT, **changes}

    def start(self, folder: Path) -> None:
        """Write the experiment, and make the containers."""
        self.folder = folder
        (folder / "run").mkdir(parents=True)
        if self.name != "last-resort":
            (folder / "last-resort").touch()
        self.began_at = time.time()
        ports = {name: free_port() for name in self.names}
        grpc = {name: f"127.0.0.1:{free_port()}" for name in self.names}
        if self.name == "full-volume":
            mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder / "run")]
            subprocess.run(mount, check=True)
        if self.name == "hanging-volume":
            with (folder / "image").open("wb") as image:
                image.truncate(64 << 20)
            subprocess.run(["mkfs.ext4", "-q", "-F", image.name], check=True)
            subprocess.run(["mount", "-o", "loop", image.name, str(folder / "run")], check=True)
        file = folder / "experiment.yaml"
        file.write_text(yaml.safe_dump(self._experiment(ports, grpc), sort_keys=False))
        self.containers = made = {}
        for name in self.names:
            command = self._command(name, ports, grpc) + self.options.get(name, [])
            made[name] = Container(name, ports[name], command, folder / f"{name}.log")

    def _command(self, name: str, ports: dict[str, int], grpc: dict[str, str]) -> list[str]:
        """Return the module of a container, and its arguments."""
        folder, port = str(self.folder), str(ports[name])
        component, _, rank = name.partition("-")
        if component == "controller":
            return ["tests.observability.broken_sets", self.name, folder, port]
        if component == "cost":
            budget = str(self.experiment.get("stop", {}).get("dollars", 0))
            return ["tests.observability.broken_pods", folder, str(ports["learner"]), port, budget,
                    self.family]  # fmt: skip
        seedbed = ["seedbed.cli.main", component]
        if component == "replay":
            return [*seedbed, "--listen", grpc[name], "--directory", f"{folder}/{name}",
                    "--sequences", "2000", "--metrics-port", port]  # fmt: skip
        seedbed += [f"{folder}/experiment.yaml", "--set", f"{component}.metrics_port={port}"]
        if component == "actor":
            return [*seedbed, "--learner", grpc[f"learner-{rank}" if rank else "learner"]]
        seedbed += ["--run-dir", f"{folder}/run/pong{rank}", "--listen", grpc[name], "--linger",
                    "--rank", rank or "0"]  # fmt: skip
        if self.name == "down":
            seedbed += ["--tls", str(short_certificate(self.folder / "tls"))]
        return seedbed

    def _experiment(self, ports: dict[str, int], grpc: dict[str, str]) -> dict[str, Any]:
        made = {**self.experiment}
        kwargs = {"file": str(self.folder / "environment_s")}
        made["environment"] = {**made["environment"], "kwargs": kwargs}
        if ":" in made.get("agent", ""):
            made["agent_options"] = {"file": str(self.folder / "training_s")}
        if "cost" in ports:
            made["cost"] = {"meter": f"http://127.0.0.1:{ports['cost']}/status"}
        shards = [address for name, address in grpc.items() if name.startswith("replay")]
        if shards:
            replay = {**made["learner"]["replay"], "storage": "remote", "shards": shards}
            made["learner"] = {**made["learner"], "replay": replay}
        if "learner-1" in ports:
            addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
            made["gossip"] = {"replicas": 2, "addresses": addresses}
        return made

    def keep(self) -> None:
        """Keep the containers, and write what the meter is told of them."""
        for item in self.containers.values():
            item.keep()
        told = {
            name: [item.wanted, item.is_there, max(0, item.restarts), item.exit_code]
            for name, item in self.containers.items()
        }
        fresh = self.folder / "pods.fresh"
        # An API server that denies every call.
        fresh.write_text("" if self.is_denied else json.dumps(told))
        fresh.replace(self.folder / "pods.json")

    def go_on(self, seconds: float) -> bool:
        """Scrape where that is due after so many seconds, and return whether it was the last."""
        if seconds >= self._scraped * self.scrape_s:
            self.scrape(self._scraped)
            self._scraped += 1
        return self._scraped == self.scrapes

    def scrape(self, number: int) -> None:
        """Read every container that has a pod, after the event of this scrape."""
        if number in self.events:
            self.events[number](self)
        for name, item in self.containers.items():
            component, _, rank = name.partition("-")
            if not item.is_there and component not in ("cost", "controller"):
                continue
            experiment = "lab" if component == "controller" else "pong"
            labels = {"namespace": "rl", "experiment": experiment, "role": component}
            labels["pod"] = f"{experiment}-{component}-{rank or 0}"
            text = item.scrape()
            self._add(number, "up", labels, str(int(text is not None)))
            for family in text_string_to_metric_families(text or ""):
                for sample in family.samples:
                    if not sample.name.endswith("_bucket") or "policy_lag" in sample.name:
                        # As Prometheus does without `honor_labels`.
                        own = {f"exported_{k}" if k in labels else k: v
                               for k, v in sample.labels.items()}  # fmt: skip
                        # The time of promtool begins with 0.
                        is_time = sample.name.endswith("_timestamp_seconds")
                        value = sample.value - is_time * self.began_at
                        self._add(number, sample.name, {**labels, **own}, f"{value:.6g}")

    def _add(self, number: int, name: str, labels: dict[str, str], value: str) -> None:
        inside = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
        self.series[f"{name}{{{inside}}}"][number] = value.replace("nan", "NaN")

    def close(self) -> None:
        """End the processes."""
        if self.name == "hanging-volume":
            subprocess.run(["fsfreeze", "-u", str(self.folder / "run")], check=False)
        for item in self.containers.values():
            item.end(signal.SIGKILL)
        if self.name.endswith("-volume"):
            subprocess.run(["umount", "-l", str(self.folder / "run")], check=False)

    def store(self) -> None:
        """Write the series that the rules read, as promtool takes them."""
        text = RULES.read_text()
        names = {"up", *re.findall(r"seedbed_\w+", text)}
        kept = {
            name: written([values.get(i) for i in range(self.scrapes)])
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


CONTROLLER = ("controller",)
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
    Run("killed", {8: kill("learner")} | dict.fromkeys(range(12, 76), kill("actor"))),
    Run("denied", {16: deny}),
    # No actor has a node, and the nodes are of a family without a price.
    Run("no-node", {0: no_node("actor")}, family="z9"),
    # Without a meter, and with a certificate that is not renewed. It answers nothing any more.
    Run("down", {24: lambda run: run.containers["learner"].send(signal.SIGSTOP)}, ("learner",)),
    Run("shards", {24: damage}, ("learner", "actor", "cost", "replay-0", "replay-1"), **DQN),
    Run("peer-lost", {24: lambda run: run.containers["learner-1"].end(signal.SIGKILL)},
        ("learner", "learner-1", "actor")),
    # The parameters of one learner become a thousand times as large as those of the other one.
    Run("peer-diverges", {}, ("learner", "learner-1", "actor", "actor-1"), options={
        "learner-1": ["--set", "learner.optimizer.learning_rate=1000",
                      "--set", "learner.optimizer.max_gradient_norm=0"]}),
    Run("hanging-volume", {24: freeze}),
    # A simulator hangs that all environments call, and an accelerator that trains.
    Run("environments-hang", {20: wait(environment=1e6)}),
    Run("training-hangs", {12: wait(training=1e6)}, **{**DQN, "agent": WAITING + "Dqn"}),
    Run("lag", {0: wait(training=0.5)}, agent=WAITING + "Vtrace",
        learner={**EXPERIMENT["learner"], "queue_batches": 40}),
    # Controllers of sets: all runs end; the API server makes no learner; the controller is killed;
    # the bound is a third of what all runs cost.
    Run("set", {}, CONTROLLER),
    Run("set-refused", {}, CONTROLLER),
    Run("set-silent", {24: lambda run: run.containers["controller"].end(signal.SIGKILL)},
        CONTROLLER),
    Run("set-dear", {}, CONTROLLER),
    # Those of half an hour.
    Run("set-hangs", {}, CONTROLLER, minutes=33),
    Run("idle", {4: lambda run: run.containers["actor"].end()}, minutes=LONG),
    Run("last-resort", {}, minutes=LONG),
    Run("pending", {0: no_node("learner")}, minutes=LONG),
    Run("slow", {40: wait(environment=0.1)}, minutes=LONG),
    Run("starving", {}, minutes=LONG, **DQN, actor={
        **EXPERIMENT["actor"], "groups": 1, "envs_per_group": 1}),
    Run("queue-full", {0: wait(training=20, environment=0)}, minutes=LONG,
        agent=WAITING + "Vtrace", actor={**EXPERIMENT["actor"], "envs_per_group": 64},
        learner={**EXPERIMENT["learner"], "batch_size": 16, "checkpoint": {"every_s": 120}}),
)  # fmt: skip


def main() -> int:
    """Make the runs that are named, or all."""
    chosen = [run for run in RUNS_MADE if not sys.argv[1:] or run.name in sys.argv[1:]]
    left = list(chosen)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            for run in chosen:
                run.start(Path(folder) / run.name)
            begin = time.monotonic()
            while left:
                for run in list(left):
                    if run.go_on(time.monotonic() - begin):
                        left.remove(run)
                        run.close()
                        run.store()
                    else:
                        run.keep()
                time.sleep(1)
        finally:
            for run in left:
                run.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
