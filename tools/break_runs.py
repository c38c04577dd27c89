"""Break real runs, and store the series from which the alerts are tested.

`python -m tools.break_runs [NAME ...]` starts learners, actors and meters on this machine, fills a
volume, raises the learning rate to 1e6, kills a meter and so on, reads every `/metrics` each 15
seconds as Prometheus does, and writes `k8s/rules/runs/NAME.json`. All runs go on at once, for 19
minutes. The API server behind a meter is a file that the script writes; ended containers are
started again with the back-off of a kubelet. The full volume is a tmpfs, which needs root.
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
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import gymnasium
import trustme
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import free_port
from tools.broken_pods import Container

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "k8s" / "rules" / "runs"
SCRAPE_S, SCRAPES = 15.0, 76
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
DQN: dict[str, Any] = {
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


class Run:
    """A release: a learner, an actor and a meter, and their series.

    Args:
        name: Name of the file of its series.
        events: What is done to the run, by the number of the scrape.
        containers: Names of its containers; `learner-1` and `replay-0` are of a component too.
        family: Family of the nodes that the meter prices.
        changes: Keys of the experiment, over `EXPERIMENT`.
    """

    def __init__(
        self,
        name: str,
        events: dict[int, Callable[[Run], None]],
        containers: tuple[str, ...] = ("learner", "actor", "cost"),
        family: str = "x",
        **changes: Any,
    ) -> None:
        self.is_denied = False
        self.name, self.events, self.names, self.family = name, events, containers, family
        self.series: dict[str, dict[int, str]] = defaultdict(dict)
        self.experiment = {**EXPERIMENT, **changes}

    def start(self, folder: Path) -> None:
        """Write the experiment, and make the containers."""
        self.folder = folder
        (folder / "run").mkdir(parents=True)
        self.began_at = time.time()
        ports = {name: free_port() for name in self.names}
        grpc = {name: f"127.0.0.1:{free_port()}" for name in self.names}
        if self.name == "full-volume":
            mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder / "run")]
            subprocess.run(mount, check=True)
        file = folder / "experiment.yaml"
        file.write_text(yaml.safe_dump(self._experiment(ports, grpc), sort_keys=False))
        budget = self.experiment.get("stop", {}).get("dollars", 0)
        made: dict[str, Container] = {}
        for name in self.names:
            component, _, rank = name.partition("-")
            seedbed = ["seedbed.cli.main", component]
            metrics = f"{component}.metrics_port={ports[name]}"
            command = {
                "learner": [*seedbed, str(file), "--run-dir", str(folder / "run" / f"pong{rank}"),
                            "--listen", grpc[name], "--linger", "--rank", rank or "0",
                            "--set", metrics],
                "actor": [*seedbed, str(file), "--learner", grpc["learner"], "--set", metrics],
                "cost": ["tools.broken_pods", str(folder), str(ports["learner"]), str(ports[name]),
                         str(budget), self.family],
                "replay": [*seedbed, "--listen", grpc[name], "--directory", str(folder / name),
                           "--sequences", "2000", "--metrics-port", str(ports[name])],
            }[component]  # fmt: skip
            if self.name == "down" and component == "learner":
                command += ["--tls", str(short_certificate(folder / "tls"))]
            made[name] = Container(name, ports[name], command, folder / f"{name}.log")
        self.containers = made

    def _experiment(self, ports: dict[str, int], grpc: dict[str, str]) -> dict[str, Any]:
        made = {**self.experiment}
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

    def scrape(self, number: int) -> None:
        """Read every container that has a pod, after the event of this scrape."""
        if number in self.events:
            self.events[number](self)
        for name, item in self.containers.items():
            component, _, rank = name.partition("-")
            if not item.is_there and component != "cost":
                continue
            labels = {"namespace": "rl", "experiment": "pong", "role": component}
            labels["pod"] = f"pong-{component}-{rank or 0}"
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


def park(run: Run) -> None:
    """Take learner and actor to zero, as somebody does with `kubectl scale`."""
    for component in ("actor", "learner"):
        run.containers[component].end()


def fill(run: Run) -> None:
    """Take all that is free on the volume of the run."""
    with suppress(OSError), (run.folder / "run" / "filler").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))


def short_certificate(folder: Path) -> Path:
    """Write a certificate of which a tenth of the lifetime is left, and return its folder."""
    folder.mkdir()
    authority, now = trustme.CA(), datetime.now(UTC)
    made = authority.issue_cert(
        "localhost", not_before=now - timedelta(hours=9), not_after=now + timedelta(hours=1)
    )
    (folder / "tls.key").write_bytes(made.private_key_pem.bytes())
    (folder / "tls.crt").write_bytes(made.cert_chain_pems[0].bytes())
    (folder / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return folder


def deny(run: Run) -> None:
    """Let every call of the meter to the API server fail, and no frame arrive any more."""
    run.is_denied = True
    run.containers["actor"].send(signal.SIGSTOP)


def damage(run: Run) -> None:
    """Kill a shard, flip bits in the file of its observations, and take another shard away."""
    run.containers["replay-0"].send(signal.SIGKILL)
    largest = max((run.folder / "replay-0").rglob("*.bin"), key=lambda file: file.stat().st_size)
    with largest.open("r+b", 0) as file:
        for place in range(0, largest.stat().st_size, 64):
            file.seek(place)
            byte = file.read(1)
            file.seek(place)
            file.write(bytes([byte[0] ^ 255]))
    run.containers["replay-1"].end(signal.SIGKILL)


def lose_node(run: Run) -> None:
    """Give the actors no node."""
    run.containers["actor"].has_node = False


def kill(name: str) -> Callable[[Run], None]:
    """Return an event that kills a container, as the kernel does for lack of memory."""
    return lambda run: run.containers[name].send(signal.SIGKILL)


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
    Run("killed", {8: kill("learner")} | dict.fromkeys(range(12, SCRAPES), kill("actor"))),
    Run("denied", {16: deny}),
    # No actor has a node, and the nodes are of a family without a price.
    Run("no-node", {0: lose_node}, family="z9"),
    # Without a meter, and with a certificate that is not renewed. It answers nothing any more.
    Run("down", {24: lambda run: run.containers["learner"].send(signal.SIGSTOP)}, ("learner",)),
    Run("shards", {24: damage}, ("learner", "actor", "cost", "replay-0", "replay-1"), **DQN),
    Run("peer-lost", {24: lambda run: run.containers["learner-1"].end(signal.SIGKILL)},
        ("learner", "learner-1", "actor")),
)  # fmt: skip


def main() -> int:
    """Make the runs that are named, or all."""
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
