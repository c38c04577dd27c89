"""Hostile peers beside a run that learns: everybody else's run must go on, and learn."""

from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from typing import Any

from tests.storm.background import Background
from tests.storm.hostile_runs import HostileRun
from tests.storm.kills import Outcome
from tests.storm.lies import Liars
from tests.storm.run_files import LEARNED, check_files, check_rows, results, returns, status
from tests.storm.targets import memory_mb
from tests.support.processes import START_S, guarded

STALL_S = 60.0  # longest time without an update, a frame, or parameters of a peer
LEARN_S = 240.0  # longest wait beyond the share of a run until it has learned
MOST_GROWTH_MB = 400.0  # of an honest process
MOST_IN_FLIGHT = 5_000  # frames that no counter has yet: slots, queue and batches
SPOILED_SHARE = 0.3  # of the time, with lies that may spoil the policy
# Words of asyncio about an error that nobody has handled.
UNHANDLED = ("was never retrieved", "Task was destroyed")
# gRPC logs one where a peer leaves while its status is sent.
MOST_TRACEBACKS = 20


class Watch(Background):
    """Watches the honest processes, in a thread.

    Args:
        run: the run, which has started.
        out: takes what is found.
    """

    def __init__(self, run: HostileRun, out: Outcome) -> None:
        super().__init__()
        self._of, self._out = run, out
        self._growing: dict[str, tuple[float, float]] = {}  # number, and since when
        self._found: set[str] = set()
        self._first_mb: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether a process has ended, so that nothing more can be learned from the run."""
        return any(one.popen.poll() is not None for one in self._of.processes.values())

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self._check_processes()
            for directory in self._of.directories:
                self._check_numbers(directory)

    def _problem(self, key: str, text: str) -> None:
        """Say a problem once."""
        if key not in self._found:
            self._found.add(key)
            self._out.problems.append(text)

    def _check_processes(self) -> None:
        for name, process in self._of.processes.items():
            if (code := process.popen.poll()) is not None:
                self._problem(name, f"{name} ended with {code}: {process.said[-400:]}")
                continue
            used = memory_mb(guarded(process.pid))
            grown = used - self._first_mb.setdefault(name, used)
            if grown > MOST_GROWTH_MB:
                self._problem(f"{name} memory", f"{name} has grown by {grown:.0f} MB")

    def _check_numbers(self, directory: Path) -> None:
        found = status(directory)
        numbers, counts = found.get("numbers", {}), found.get("counters", {})
        if not counts:
            return  # the file is being replaced
        must_grow = {"updates": counts["updates"], "env_frames": counts["env_frames"]}
        if numbers.get("gossip_received"):
            must_grow["parameters of peers"] = numbers["gossip_received"]
        for key, value in must_grow.items():
            self._check_growth(f"{directory.name}: {key}", value)
        known = max(counts["trained_frames"] * (not counts["inserted_frames"]),
                    counts["inserted_frames"]) + counts["discarded_frames"]  # fmt: skip
        if not -MOST_IN_FLIGHT <= counts["env_frames"] - known <= MOST_IN_FLIGHT:
            self._problem(f"{directory} counts", f"{directory.name}: counts do not hold: {counts}")
        wrong = [key for key, value in found.get("scalars", {}).items() if not _is_finite(value)]
        if wrong:
            self._problem(f"{directory} scalars", f"{directory.name}: {wrong} are not finite")

    def _check_growth(self, key: str, value: float) -> None:
        now = time.monotonic()
        before, since = self._growing.get(key, (-1.0, now))
        if value < before:
            self._problem(f"{key} falls", f"{key} fell from {before:g} to {value:g}")
        self._out.longest_stall_s = max(self._out.longest_stall_s, now - since)
        if value != before:
            self._growing[key] = (value, now)
        elif now - since > STALL_S:
            self._problem(key, f"{key} has stood at {value:g} for {now - since:.0f} s")


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def besiege(run: HostileRun, seed: int, deadline: float) -> Outcome:
    """Tell lies about a run until a deadline, and until it has learned; end it, and judge it.

    Args:
        run: the run, which has started.
        seed: of the lies.
        deadline: by `time.monotonic`.
    """
    out, lies = Outcome(), run.lies()
    spoiling_s = 0.0
    if any(one.spoils for one in lies):
        spoiling_s = SPOILED_SHARE * (deadline - time.monotonic())
    with Watch(run, out) as watch:
        with Liars([one for one in lies if not one.spoils], seed, out.problems) as liars:
            _wait(watch, deadline - spoiling_s)
            _wait(watch, deadline + LEARN_S, run)
        out.events.update(liars.told)
        if not watch.is_over and not _has_learned(run):
            out.problems.append(f"{run.name} has not learned")
        if spoiling_s:
            with Liars(lies, seed + 1, out.problems) as liars:
                _wait(watch, time.monotonic() + spoiling_s)
            out.events.update(liars.told)
    _judge(run, out)
    return out


def _wait(watch: Watch, until: float, run: HostileRun | None = None) -> None:
    """Wait until a time, or until a run has learned, or a process has ended."""
    while time.monotonic() < until and not watch.is_over and not (run and _has_learned(run)):
        time.sleep(0.5)


def _has_learned(run: HostileRun) -> bool:
    return max(returns(directory)[1] for directory in run.directories) >= LEARNED


def _judge(run: HostileRun, out: Outcome) -> None:
    """End the run, and check what it leaves."""
    pids = {name: guarded(one.pid) for name, one in run.processes.items()}
    out.run["memory_mb"] = {
        name: round(memory_mb(pid)) for name, pid in pids.items() if "actor" not in name
    }
    for kind in ("actor", "learner", "shard"):
        _end(run, kind, out)
    for directory in run.directories:
        out.problems.say(check_files(directory) + check_rows(directory))
    out.run |= results(run.directories)


def _end(run: HostileRun, kind: str, out: Outcome) -> None:
    """End the processes of a kind by SIGTERM, and read what they have said."""
    began = time.monotonic()
    processes = {name: one for name, one in run.processes.items() if kind in name}
    for process in processes.values():
        process.send(signal.SIGTERM)
    for name, process in processes.items():
        if code := process.wait(START_S):
            out.problems.append(f"{name} ended with {code} after SIGTERM: {process.said[-400:]}")
        for words in UNHANDLED:
            if (at := process.said.find(words)) >= 0:
                out.problems.append(f"{name} said: {process.said[at : at + 800]}")
        if (count := process.said.count("Traceback")) > MOST_TRACEBACKS:
            out.problems.append(f"{name} said {count} tracebacks")
    out.longest_term_s = max(out.longest_term_s, time.monotonic() - began)
