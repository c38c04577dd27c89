"""A set of CartPoles whose processes are killed at random moments, to its end.

    python -m tests.sets.torture --runs 24 --kills 50 --seed 0

A kill is of the sweep, of a learner or of an actor; or the disk is full, where a volume can be
mounted. At the end every run has its frames once, and
the comparison has the settings and the counts of a set that nobody has disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from seedbed.runs.progress import load_progress
from seedbed.sets.folder import Member, read_members
from seedbed.sets.runs import load_runs
from tests.support.processes import START_S, Process, children, command, guarded, parent
from tests.support.volume import MIB, mounted, put
from tests.support.waiting import wait_for

EXPERIMENT = """
name: torture
environment: {id: CartPole-v1}
agent: vtrace
actor: {processes: 1, envs_per_group: 4, connect_timeout_s: 60}
learner:
  network: mlp
  frame_stack: 1
  unroll_length: 8
  batch_size: 8
  checkpoint: {every_s: 0.5}
evaluation: {episodes: 2, num_envs: 2}
logging: {interval_s: 0.2}
stop: {env_frames: 60000}
"""
LR = "learner.optimizer.learning_rate"
FRAMES = 60_000
SEEDS = 4
# Seconds between two kills, at most: the start of a learner and some of its training.
LONGEST_S = 10.0
VOLUME = 400  # MiB


class Torture:
    """One set under kills.

    Args:
        folder: Where the set and the outputs of its commands are.
        runs: Number of runs, of at most `SEEDS` seeds each.
        seed: Of the moments and the victims.
        volume: A small volume for the set, which is filled; None leaves disks alone.
    """

    def __init__(self, folder: Path, runs: int, seed: int, volume: Path | None = None) -> None:
        self.folder, self.set = folder, (volume or folder) / "set-of-all"
        self.volume = volume
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        seeds = min(SEEDS, max(1, runs // 2))
        rates = ",".join(f"{1e-3 * (1 + at):g}" for at in range(runs // seeds))
        source = folder / "torture.yaml"
        source.write_text(EXPERIMENT)
        self.words = ("sweep", str(source), "--set", f"{LR}={rates}", "--seeds", str(seeds),
                      "--out", str(self.set), "--parallel", "2")  # fmt: skip
        self._started = 0
        self.sweep = self._start()

    def _start(self) -> Process:
        self._started += 1
        return Process(self.folder / f"sweep-{self._started}", *self.words)

    def kill(self) -> None:
        """Kill a process at a random moment; start the sweep again where it has ended."""
        time.sleep(self.random.uniform(0, LONGEST_S))
        if (code := self.sweep.popen.poll()) is not None:
            raise AssertionError(
                f"the set has ended with {code} before its kills: {self.sweep.said}"
            )
        trains = sorted(children(self.sweep.pid))
        below = {train: sorted(children(train)) for train in trains}
        kinds = ["sweep", "learner", "actor", *(["disk"] if self.volume else [])]
        kind = self.random.choice(kinds)
        if kind == "disk":
            self._fill_disk()
            return
        if kind == "sweep":
            self.sweep.send(signal.SIGKILL)
            self.sweep.wait()
            self.kills[kind] += 1
            wait_for(lambda: not any(map(parent, trains)), "the runs end with the sweep", START_S)
            self.sweep = self._start()
            return
        actors = [pid for some in below.values() for pid in some if b"\0actor\0" in command(pid)]
        victims = [guarded(train) for train in trains] if kind == "learner" else actors
        if victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(victims), signal.SIGKILL)
                self.kills[kind] += 1

    def _fill_disk(self) -> None:
        """Fill the disk until the sweep has ended for it, make room, and start it again."""
        assert self.volume is not None
        ballast = self.volume / "ballast"
        left = self.random.choice([0, 20 * MIB])
        while True:
            with contextlib.suppress(OSError):  # the set has written meanwhile
                put(ballast, max(1, shutil.disk_usage(self.volume).free - left))
                break
        assert self.sweep.wait(), f"the set has ended on a full disk: {self.sweep.said}"
        self.kills["disk"] += 1
        ballast.unlink()
        self.sweep = self._start()

    def finish(self) -> None:
        """Let the set come to its end, by the same command."""
        assert self.sweep.wait(3600) == 0, self.sweep.said
        last = self._start()
        assert last.wait(3600) == 0, last.said

    def check(self) -> None:
        """Check what the set has at its end."""
        members = read_members(self.set)
        for member in members:
            check_member(member)
        result = load_runs(self.set).compare()
        assert result["runs"] == len(members)
        for group in result["groups"]:
            assert group["states"] == {"finished": len(members) // len(result["groups"])}
        wanted = {json.dumps(dict(member.values)) for member in members}
        assert {json.dumps(group["values"]) for group in result["groups"]} == wanted


def check_member(member: Member) -> None:
    """Check that a run is finished, with each frame once and no row lost."""
    assert member.is_finished, member.name
    summary = member.summary()
    assert summary["env_frames"] >= FRAMES
    assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
    rows = load_progress(member.run)
    updates, frames = rows["updates"], rows["env_frames"]
    # A run that goes on from an older checkpoint writes its rows again; the last ones count.
    last = updates <= [min(updates[at:]) for at in range(len(updates))]
    assert (updates[last][1:] >= updates[last][:-1]).all()
    assert updates[-1] == summary["updates"]
    assert frames[-1] == summary["env_frames"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="torture-") as folder,
        mounted(Path(folder) / "volume", VOLUME) as can,
    ):
        volume = Path(folder) / "volume" if can else None
        torture = Torture(Path(folder), args.runs, args.seed, volume)
        while sum(torture.kills.values()) < args.kills:
            torture.kill()
        torture.finish()
        torture.check()
        print(json.dumps({"runs": args.runs, "seed": args.seed, "kills": torture.kills}))


if __name__ == "__main__":
    main()
