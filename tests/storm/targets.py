"""What is fuzzed: a learner in training, a shard and gossip transports of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from seedbed.runtime.tokens import Role
from tests.storm import judge_act, judge_gossip, judge_replay
from tests.storm.credentials import RoleFiles
from tests.storm.fuzz import Door, Method
from tests.storm.judge_replay import CAPACITY, EXPONENT
from tests.support.processes import ROOT, free_port
from tests.support.shard_process import ShardProcess

_HELLO = "seedbed-hello-bin"
_REPLAY, _GOSSIP = "/seedbed.v1.Replay/", "/seedbed.v1.Gossip/"


def never(_: bytes) -> bool:
    return False


def is_actions(reply: bytes) -> bool:
    return judge_act.wire.LearnerMessage.FromString(reply).HasField("actions")


# A stream to a learner that is hit meanwhile.
_CUT = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)
ACT = Method(
    *("/seedbed.v1.Inference/Act", judge_act.stream, judge_act.judge, is_actions),
    cut=_CUT,
    hello_key=_HELLO,
)
REPLAY = tuple(
    Method(_REPLAY + name, make, judge, is_answer, hello_key=hello_key)
    for name, make, judge, is_answer, hello_key in (
        (
            "Insert",
            judge_replay.insert_stream,
            judge_replay.judge_insert,
            judge_replay.is_stored,
            _HELLO,
        ),
        (
            "Sample",
            judge_replay.sample_stream,
            judge_replay.judge_sample,
            judge_replay.is_sample,
            _HELLO,
        ),
        (
            "Prioritize",
            judge_replay.prioritize_stream,
            judge_replay.judge_prioritize,
            judge_replay.is_prioritized,
            _HELLO,
        ),
        ("GetState", judge_replay.state_stream, judge_replay.judge_state, lambda _: True, ""),
    )
)


def _gossip(name: str, make: Any, judge: Any, is_answer: Any = never) -> Method:
    """Return a method of which a learner serves each peer one stream at a time."""
    return Method(_GOSSIP + name, make, judge, is_answer, side_by_side=1, hello_key=_HELLO)


_PUSH = _gossip("Push", judge_gossip.push_stream, judge_gossip.judge_push, judge_gossip.is_received)
_FETCH = _gossip("Fetch", judge_gossip.fetch_stream, judge_gossip.judge_fetch)
_REDUCE = _gossip("Reduce", judge_gossip.reduce_stream, judge_gossip.judge_reduce)
_NO_REDUCE = _gossip("Reduce", judge_gossip.reduce_stream, judge_gossip.judge_reduce_refused)
GOSSIP = (_PUSH, _FETCH, _REDUCE)


class Target:
    """A process of its own and the methods that it serves."""

    def __init__(self, name: str, pid: int, doors: list[Door]) -> None:
        self.name, self.pid, self.doors = name, pid, doors


class _TcpShard(ShardProcess):
    over_tcp = True


@contextmanager
def shard(folder: Path, files: RoleFiles) -> Iterator[Target]:
    """Start a shard that demands tokens and certificates."""
    folder.mkdir()
    made = _TcpShard(folder, CAPACITY, EXPONENT)
    made.start(*files.options(Role.SHARD, tls=True)).listening()
    try:
        assert made.process is not None
        doors = [
            Door(made.address, method, files.callers(Role.SHARD, method.path, tls=True))
            for method in REPLAY
        ]
        yield Target("shard", made.process.pid, doors)
        made.process.runs()
    finally:
        made.end()


@contextmanager
def gossip(folder: Path, files: RoleFiles) -> Iterator[Target]:
    """Start transports of gossip with tokens, and of all-reduce with certificates as well."""
    folder.mkdir()
    port = free_port()
    options = files.options(Role.LEARNER, tls=True)
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.storm.gossip_host", str(folder), f"{port}", *options],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n", (folder / "stderr").read_text()
        of_gossip, of_ring = f"unix:{folder}/gossip-0", f"127.0.0.1:{port}"
        doors = [
            Door(address, method, files.callers(Role.LEARNER, method.path, tls))
            for address, methods, tls in (
                (of_gossip, (_PUSH, _FETCH, _NO_REDUCE), False),
                (of_ring, (_PUSH, _FETCH, _REDUCE), True),
            )
            for method in methods
        ]
        yield Target("gossip", process.pid, doors)
        assert process.poll() is None, (folder / "stderr").read_text()
    finally:
        process.kill()
        process.wait()


def memory_mb(pid: int) -> float:
    """Resident memory of a process; 0 where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmRSS")]
    return int(found[0]) / 1024 if found else 0.0
