"""Two hosts of a learner as processes: their update, the death of each, a late one, the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from seedbed.checkpoints.store import CheckpointStore
from tests.support.processes import ROOT, Cluster, Process, children, guarded, python_path
from tests.support.waiting import wait_for

UPDATE = ROOT / "tests/support/host_update.py"
HOSTS = ("learner.backend=jax", "learner.device=cpu", "learner.hosts=2", "actor.processes=1")
START_S = 500.0


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "training"), [("vtrace", 0), ("r2d2", 2)])
def test_the_update_of_two_hosts_is_that_of_one(tmp_path: Path, agent: str, training: int) -> None:
    address, processes = free_address(), []
    for host, hosts in ((0, 2), (1, 2), (0, 1)):
        arguments = [str(host), str(hosts), address, str(tmp_path / f"{host}-of-{hosts}.npz")]
        split = [str(training)] if training and hosts > 1 else []
        processes.append(
            subprocess.Popen(
                [sys.executable, str(UPDATE), *arguments, agent, *split],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": python_path(), "KERAS_BACKEND": "jax"},
            )
        )
    try:
        assert [process.wait(START_S) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()
    first, second, alone = (
        dict(np.load(tmp_path / f"{name}.npz")) for name in ("0-of-2", "1-of-2", "0-of-1")
    )
    parts = [name for name in alone if name.startswith("priority/")]
    assert bool(parts) == (agent == "r2d2")
    for name in parts:
        both = np.concatenate([first.pop(name), second.pop(name)])
        np.testing.assert_allclose(both, alone.pop(name), rtol=1e-5, atol=1e-6)
    for name, array in alone.items():
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(first[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


class Hosts(Cluster):
    """A run of two hosts."""

    def process_of(self, host: int, parent: int | None = None) -> int:
        """The process of a host, once it runs."""
        train = self.starts[-1]

        def find() -> int | None:
            for pid in children(parent or train.pid):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"--host" in words and words[words.index(b"--host") + 1] == b"%d" % host:
                    return pid
            return None

        return wait_for(find, f"host {host} runs", START_S)

    def begin(self, *arguments: str) -> Process:
        self.starts = [self.train(*arguments)]
        return self.starts[-1]

    def frames(self) -> int:
        return int(self.status().get("counters", {}).get("env_frames", 0))

    def trains_beyond(self, frames: int) -> None:
        def more() -> bool:
            self.starts[-1].runs()
            status = self.status()
            return status.get("state") == "training" and self.frames() > frames

        wait_for(more, f"more than {frames} frames", START_S, every_s=0.2)

    def newest_frames(self) -> int:
        newest = CheckpointStore(str(self.run / "checkpoints")).newest()
        return int(newest.meta["counters"]["env_frames"]) if newest else 0

    def log(self, host: int) -> str:
        return (self.run / f"logs/host-{host}.log").read_text(errors="replace")

    def starts_again(self, count: int, words: str) -> None:
        text = self.starts[-1]
        wait_for(lambda: text.said.count("started again") >= count, words, START_S, every_s=0.2)
        assert words in text.said


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    cluster = Hosts(tmp_path, *HOSTS)
    yield cluster
    cluster.close()


def resumed_frames(log: str) -> list[int]:
    return [int(line.split("resumed at frame ")[1].split(",")[0])
            for line in log.splitlines() if "resumed at frame " in line]  # fmt: skip


@pytest.mark.slow
def test_all_hosts_go_on_from_the_checkpoint_after_the_death_of_any(hosts: Hosts) -> None:
    train = hosts.begin()
    saved = 0
    for number, host in enumerate((1, 0), 1):
        hosts.trains_beyond(saved + 500)
        saved = hosts.newest_frames()
        os.kill(hosts.process_of(host), signal.SIGKILL)
        hosts.starts_again(number, f"host {host} ended with signal SIGKILL")
        wait_for(lambda n=number: len(resumed_frames(hosts.log(0))) == n, "resumed", START_S)
        assert resumed_frames(hosts.log(0))[-1] >= saved, "frames never go back past a checkpoint"
    hosts.trains_beyond(saved)
    train.send(signal.SIGTERM)
    assert train.wait(START_S) == 0
    assert train.summary()["stop_reason"] == "signal SIGTERM"
    assert train.summary()["env_frames"] >= saved


@pytest.mark.slow
def test_a_late_host_is_waited_for_by_name_and_a_signal_to_one_ends_all(hosts: Hosts) -> None:
    train = hosts.begin()
    hosts.trains_beyond(500)
    guard = hosts.process_of(1)
    late = guarded(guard)
    assert late != guard
    os.kill(late, signal.SIGSTOP)
    try:
        waiting = lambda: str(hosts.status().get("waiting_for"))  # noqa: E731
        wait_for(lambda: "waiting for host 1" in waiting(), "named", every_s=0.1)
    finally:
        os.kill(late, signal.SIGCONT)
    hosts.trains_beyond(hosts.frames())
    assert "started again" not in train.said, "a late host is no lost one"
    os.kill(guard, signal.SIGTERM)
    hosts.starts_again(1, "host 0 ended with exit code 37")
    assert "host 1 stopped (signal SIGTERM)" in hosts.log(0)
    wait_for(lambda: resumed_frames(hosts.log(0)), "resumed", START_S)
    assert resumed_frames(hosts.log(0))[0] > 500, "with a last checkpoint"


@pytest.mark.slow
def test_a_stop_condition_ends_all_hosts_and_a_finished_run_starts_none(hosts: Hosts) -> None:
    hosts.overrides += ("stop.updates=60",)
    train = hosts.begin()
    assert train.wait(START_S) == 0
    summary = train.summary()
    assert summary["updates"] >= 60
    assert summary["stop_reason"].startswith("stop.updates: ")
    second = json.loads((hosts.run / "logs/host-1.json").read_text())
    assert second["updates"] == summary["updates"]
    assert second["stop_reason"] == summary["stop_reason"]
    assert not (hosts.run / "host-1/checkpoints").exists(), "the first host writes them"
    again = hosts.begin()
    assert again.wait(START_S) == 0
    assert again.summary()["updates"] == summary["updates"]


@pytest.mark.slow
def test_the_parent_of_a_host_names_the_lost_one(hosts: Hosts) -> None:
    address = free_address()
    pair = [
        hosts.start(
            "learner", "--host", str(host), "--run-dir", str(hosts.path / f"pod-{host}"),
            "--set", f"learner.coordinator={address}",
            "--listen", f"unix:{hosts.path}/{host}.sock",
        )
        for host in range(2)
    ]  # fmt: skip
    first, second = pair
    for process in pair:
        wait_for(lambda p=process: "listening on" in p.said, "listens", START_S)
    hosts.start("actor", "--learner", f"unix:{hosts.path}/0.sock")
    hosts.start("actor", "--learner", f"unix:{hosts.path}/1.sock", "--index", "1")
    hosts.run = hosts.path / "pod-0"
    wait_for(lambda: hosts.counters().get("updates", 0) > 5, "trains", START_S, every_s=0.2)
    (child,) = second.children()
    os.kill(child, signal.SIGKILL)
    assert second.wait(START_S) == 37
    assert "host 1: its process ended with signal SIGKILL" in second.last_lines()[-2]
    assert first.wait(START_S) == 37
    assert "host 1 of 2 was lost" in first.last_lines()[-2]


@pytest.mark.slow
def test_learners_of_two_hosts_gossip_and_one_starts_again_alone(hosts: Hosts) -> None:
    hosts.overrides += ("gossip.deadline_s=15",)
    train = hosts.begin("--learners", "2")

    def mixes(rank: int) -> int:
        train.runs()
        file = hosts.run / f"learner-{rank}/gossip/events.csv"
        return file.read_text().count(",mix,") if file.exists() else 0

    def both_mix(more: int, what: str) -> None:
        counts = [mixes(rank) + more for rank in range(2)]
        wait_for(lambda: all(mixes(rank) > counts[rank] for rank in range(2)), what, START_S)

    def log(rank: int) -> str:
        return (hosts.run / f"logs/learner-{rank}.log").read_text(errors="replace")

    both_mix(10, "both mix")
    parents = sorted(children(train.pid), key=lambda pid: rank_of(pid))
    os.kill(hosts.process_of(1, parents[0]), signal.SIGKILL)
    wait_for(lambda: "host 1 ended with signal SIGKILL" in log(0), "host 1 is missed", START_S)
    wait_for(lambda: resumed_frames(host_log(hosts, 0)), "learner 0 resumes", START_S, every_s=0.2)
    both_mix(10, "both mix again")
    assert "started again" not in log(1), "the other learner goes on"
    assert not resumed_frames(host_log(hosts, 1))
    train.send(signal.SIGTERM)
    assert train.wait(START_S) == 0
    updates = [learner["updates"] for learner in train.summary()["learners"]]
    assert min(updates) > 0


def rank_of(pid: int) -> int:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return int(words[words.index(b"--rank") + 1])


def host_log(hosts: Hosts, rank: int) -> str:
    return (hosts.run / f"learner-{rank}/logs/host-0.log").read_text(errors="replace")
