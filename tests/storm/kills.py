"""Hits the processes of a run that learns, one after the other, and watches that it goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.storm import faults
from tests.storm.background import Background
from tests.storm.problems import Problems
from tests.storm.run_files import (
    alive,
    check_files,
    counters,
    newest_frames,
    newest_name,
    results,
    resumed,
    status,
    updates,
)
from tests.storm.runs import LearningRun, Victim
from tests.storm.targets import memory_mb
from tests.support.processes import parent

GOES_ON_S = 120.0  # longest wait for a learner to train again
# Updates of each learner between two hits, so that the run learns: after the hit of a learner, and
# after that of another process.
UPDATES_BETWEEN, UPDATES_BETWEEN_OTHERS = 20, 3
LONGEST_JUMP_S = 86_400.0  # of a clock
# Hits of the children of one supervisor within so many seconds; it gives up after a fourth more.
SUPERVISED = {"actor": (4, 60.0), "peer": (12, 120.0)}


@dataclass
class Outcome:
    """What a storm did to one run.

    Attributes:
        events: how often each kind of event came.
        longest_stall_s: longest time without an update of any learner.
        longest_term_s: longest time from SIGTERM to the end of a process.
        frames_lost: frames below the newest checkpoint after a restart, added up.
        problems: what should not have been.
        run: frames, updates, returns and memory at the end.
    """

    events: Counter[str] = field(default_factory=Counter)
    longest_stall_s: float = 0.0
    longest_term_s: float = 0.0
    frames_lost: int = 0
    problems: Problems = field(default_factory=Problems)
    run: dict[str, Any] = field(default_factory=dict)


class StallWatch(Background):
    """Measures the longest time without an update, in a thread."""

    def __init__(self, directories: list[Path]) -> None:
        super().__init__()
        self._directories = directories
        self.longest_s = 0.0

    def _run(self) -> None:
        seen, since = self._total(), time.monotonic()
        while not self._stop.wait(0.05):
            total, now = self._total(), time.monotonic()
            self.longest_s = max(self.longest_s, now - since)
            if total != seen:
                seen, since = total, now

    def _total(self) -> list[int]:
        return [updates(directory) for directory in self._directories]


class Storm:
    """Hits one run until a deadline.

    Args:
        run: the run, which has started.
        seed: of the choices.
    """

    def __init__(self, run: LearningRun, seed: int) -> None:
        self._run, self._chance = run, random.Random(seed)
        self.outcome = Outcome()
        self._hit_at_checkpoint: dict[Path, str] = {}
        self._supervised: defaultdict[int | None, deque[float]] = defaultdict(deque)

    def until(self, deadline: float) -> None:
        """Hit processes until `deadline` (by `time.monotonic`)."""
        with StallWatch(self._run.directories) as watch:
            while time.monotonic() < deadline:
                self._step()
        self.outcome.longest_stall_s = watch.longest_s

    def _step(self) -> None:
        victim = self._chance.choice(self._run.victims())
        if not self._may(victim):
            time.sleep(0.1)
            return
        before = {directory: self._pid(directory) for directory in self._run.directories}
        self._hit(victim)
        for words in self._run.revive_dead():
            self.outcome.problems.append(words)
        self._goes_on(before, UPDATES_BETWEEN if victim.learners else UPDATES_BETWEEN_OTHERS)

    def _pid(self, directory: Path) -> int:
        return int(status(directory).get("process", {}).get("pid", 0))

    def _may(self, victim: Victim) -> bool:
        """Tell whether a process may be hit: a learner once it has a newer checkpoint."""
        for directory in victim.learners:
            if newest_name(directory) <= self._hit_at_checkpoint.get(directory, ""):
                return False
        if victim.revive is None:
            most, window_s = SUPERVISED[victim.kind]
            hits, now = self._supervised[parent(victim.pid)], time.monotonic()
            while hits and now - hits[0] > window_s:
                hits.popleft()
            return len(hits) < most
        return True

    def _hit(self, victim: Victim) -> None:
        hits = ["kill"] * 6 + ["stop"] * 3 + ["term"] * 2 + ["clock"]
        if victim.kind in ("learner", "peer"):
            hits += ["disk", "disk", "descriptors"]
        if victim.kind == "shard":
            hits += ["memory"] * 2
        hit = self._chance.choice(hits)
        if hit == "descriptors" and victim.kind == "peer":
            hit = "disk"
        if hit == "descriptors" and len(victim.learners) > 1:
            hit = "kill"
        self.outcome.events[f"{hit} {victim.kind}"] += 1
        for directory in victim.learners:
            self._hit_at_checkpoint[directory] = newest_name(directory)
        with contextlib.suppress(ProcessLookupError):
            match hit:
                case "kill" | "term":
                    self._end(victim, hit)
                case "stop":
                    os.kill(victim.pid, signal.SIGSTOP)
                    time.sleep(self._chance.uniform(0.1, 2.0))
                    os.kill(victim.pid, signal.SIGCONT)
                case "disk":
                    with faults.full_disk(victim.pid):
                        self._next_write(victim)
                case "descriptors":
                    socket = f"{victim.learners[0]}/learner.sock"
                    with faults.few_descriptors(victim.pid, socket):
                        self._next_write(victim)
                case "clock":
                    jump_s = self._chance.uniform(-LONGEST_JUMP_S, LONGEST_JUMP_S)
                    faults.move_clock(victim.pid, jump_s)
                case "memory":
                    with faults.little_memory(victim.pid):
                        time.sleep(1.0)

    def _next_write(self, victim: Victim) -> None:
        """Wait until a checkpoint was written, or has failed; at most two seconds."""
        directory = victim.learners[0]

        def writes() -> tuple[int, int]:
            numbers = status(directory).get("numbers", {})
            return numbers.get("checkpoints", 0), numbers.get("checkpoint_failures", 0)

        before, until = writes(), time.monotonic() + 2.0
        while writes() == before and alive(victim.pid) and time.monotonic() < until:
            time.sleep(0.05)

    def _end(self, victim: Victim, hit: str) -> None:
        """End a process and start it again."""
        out, began = self.outcome, time.monotonic()
        if victim.revive is None:
            self._supervised[parent(victim.pid)].append(began)
        pids = {directory: self._pid(directory) for directory in victim.learners}
        os.kill(victim.pid, signal.SIGTERM if hit == "term" else signal.SIGKILL)
        code = self._run.exit_code(victim.pid)
        while alive(victim.pid) and time.monotonic() < began + GOES_ON_S:
            time.sleep(0.01)
        if hit == "term":
            out.longest_term_s = max(out.longest_term_s, time.monotonic() - began)
            # An actor that has just started does not handle signals yet.
            early = victim.kind == "actor" and code == -signal.SIGTERM
            if code not in (None, 0) and not early:
                out.problems.append(f"{victim.kind} ended with {code} after SIGTERM")
        saved = {
            directory: (newest_frames(directory), len(resumed(directory)))
            for directory in victim.learners
        }
        if victim.revive is not None:
            victim.revive()
        for directory, (frames, resumes) in saved.items():
            self._check_frames(directory, pids[directory], frames, resumes)

    def _check_frames(self, directory: Path, old: int, frames: int, resumes: int) -> None:
        """Compare the frame at which a new process resumes with that of the newest checkpoint."""
        until = time.monotonic() + GOES_ON_S
        while self._pid(directory) == old and time.monotonic() < until:
            time.sleep(0.02)
        shown = int(counters(directory).get("env_frames", 0))
        seen = min([shown, *resumed(directory)[resumes:]])
        if seen < frames:
            self.outcome.frames_lost += frames - seen
            self.outcome.problems.append(
                f"{directory} went on at frame {seen}, and its checkpoint has {frames}"
            )

    def _goes_on(self, before: dict[Path, int], more: int) -> None:
        """Wait until every learner has made more updates."""
        start = {directory: updates(directory) for directory in before}
        pids = {directory: self._pid(directory) for directory in before}
        until = time.monotonic() + GOES_ON_S
        for directory in before:
            while time.monotonic() < until:
                if self._pid(directory) != pids[directory]:
                    pids[directory] = self._pid(directory)
                    start[directory] = updates(directory)
                if updates(directory) >= start[directory] + more:
                    break
                time.sleep(0.02)
                for words in self._run.revive_dead():
                    self.outcome.problems.append(words)
            else:
                self.outcome.problems.append(
                    f"{directory} made no {more} updates in {GOES_ON_S:g} s"
                )

    def judge(self) -> Outcome:
        """End the run, and check what it leaves."""
        out, run = self.outcome, self._run
        out.run["memory_mb"] = {name: round(memory_mb(pid)) for name, pid in run.pids().items()}
        code = run.end()
        if code:
            out.problems.append(f"{run.name} ended with {code} after SIGTERM")
        for directory in run.directories:
            out.problems.say(check_files(directory))
        out.run |= results(run.directories)
        for proxy in run.proxies:
            for fate, count in proxy.fates.items():
                out.events[f"proxy {fate}"] += count
        return out
