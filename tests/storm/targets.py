"""What is fuzzed: a learner in training, a shard and gossip transports of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.storm import judge_act, judge_gossip, judge_replay
from tests.storm.fuzz import Method
from tests.storm.judge_replay import CAPACITY, EXPONENT
from tests.support.processes import ROOT
from tests.support.shard_process import ShardProcess

_HELLO = "seedbed-hello-bin"
_REPLAY, _GOSSIP = "/seedbed.v1.Replay/", "/seedbed.v1.Gossip/"


def never(_: bytes) -> bool:
    return False


def is_actions(reply: bytes) -> bool:
    return judge_act.wire.LearnerMessage.FromString(reply).HasField("actions")


ACT = Method(
    *("/seedbed.v1.Inference/Act", judge_act.stream, judge_act.judge, is_actions),
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
    """A process of its own and the methods that it serves, by address."""

    def __init__(self, name: str, pid: int, methods: list[tuple[str, Method]]) -> None:
        self.name, self.pid, self.methods = name, pid, methods


@contextmanager
def shard(folder: Path) -> Iterator[Target]:
    folder.mkdir()
    made = ShardProcess(folder, CAPACITY, EXPONENT).start().listening()
    try:
        assert made.process is not None
        methods = [(made.address, method) for method in REPLAY]
        yield Target("shard", made.process.pid, methods)
        made.process.runs()
    finally:
        made.end()


@contextmanager
def gossip(folder: Path) -> Iterator[Target]:
    folder.mkdir()
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.storm.gossip_host", str(folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n", (folder / "stderr").read_text()
        of_gossip, of_ring = (f"unix:{folder}/{kind}-0" for kind in ("gossip", "allreduce"))
        methods = [(of_gossip, _PUSH), (of_gossip, _FETCH), (of_gossip, _NO_REDUCE)]
        methods += [(of_ring, _PUSH), (of_ring, _FETCH), (of_ring, _REDUCE)]
        yield Target("gossip", process.pid, methods)
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
