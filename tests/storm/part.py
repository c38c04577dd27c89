"""One seeded part of a storm, and the table of one or several parts."""

from __future__ import annotations

import copy
import operator
import os
import platform
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.storm import faults, targets
from tests.storm.credentials import RoleFiles
from tests.storm.fuzzer import Fuzzer
from tests.storm.hostile import besiege
from tests.storm.hostile_runs import HOSTILE_RUNS, HostileRun
from tests.storm.kills import Outcome, Storm
from tests.storm.runs import RUNS, LearningRun, VtraceRun, running
from tests.support.processes import ROOT

LONGEST_MINUTES = 40
ALL_RUNS = (*RUNS, *HOSTILE_RUNS)
MESSAGES_A_SECOND = 450.0  # two cores are shared with runs that learn
MOST_LISTED = 20


def run_part(
    seed: int,
    minutes: float,
    runs: Sequence[type[LearningRun | HostileRun]] = ALL_RUNS,
    rate: float = MESSAGES_A_SECOND,
) -> dict[str, Any]:
    """Run one part; every run gets the same share of the time.

    Args:
        seed: of all choices.
        minutes: how long, starts and ends aside.
        runs: the runs, which take turns in a random order.
        rate: mutated messages a second, at most.
    """
    began, chance = time.monotonic(), random.Random(seed)
    outcomes: dict[str, Outcome] = {}
    memory: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="storm-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        clocks = folder / "clocks"
        clocks.mkdir()
        stack.enter_context(faults.movable_clocks(clocks))
        files = RoleFiles(folder / "credentials")
        attacked = [
            stack.enter_context(targets.shard(folder / "fuzzed-shard", files)),
            stack.enter_context(targets.gossip(folder / "fuzzed-gossip", files)),
        ]
        memory = {target.name: [targets.memory_mb(target.pid)] for target in attacked}
        doors = [one for target in attacked for one in target.doors]
        with Fuzzer(seed, doors, rate) as fuzzer:
            for kind in chance.sample(runs, len(runs)):
                with running(kind(folder / kind.name.replace(" ", "-"), seed, files)) as run:
                    own = chance.randrange(2**32)
                    until = time.monotonic() + 60 * minutes / len(runs)
                    outcomes[kind.name] = _outcome(run, own, until, fuzzer)
        if fuzzer.failure is not None:
            raise fuzzer.failure
        for target in attacked:
            memory[target.name].append(targets.memory_mb(target.pid))
    return _report(seed, minutes, time.monotonic() - began, outcomes, fuzzer, memory)


def _outcome(run: LearningRun | HostileRun, seed: int, until: float, fuzzer: Fuzzer) -> Outcome:
    """Hit a run, or tell lies about it, until a time."""
    if isinstance(run, HostileRun):
        return besiege(run, seed, until)
    if isinstance(run, VtraceRun):
        fuzzer.attack(run.door())
    storm = Storm(run, seed)
    storm.until(until)
    fuzzer.attack(None)
    return storm.judge()


def _report(
    seed: int,
    minutes: float,
    seconds: float,
    outcomes: dict[str, Outcome],
    fuzzer: Fuzzer,
    memory: dict[str, list[float]],
) -> dict[str, Any]:
    tallies = fuzzer.tallies
    return {
        "parts": 1,
        "seeds": [seed],
        "minutes": minutes,
        "seconds": round(seconds),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}",
        "messages": {path: one.messages for path, one in tallies.items()},
        "streams": sum(one.streams for one in tallies.values()),
        "refused": sum(one.refused for one in tallies.values()),
        "cut": sum(one.cut for one in tallies.values()),
        "unanswered": sum(one.unanswered for one in tallies.values()),
        "mismatches": {path: len(one.mismatches) for path, one in tallies.items()},
        "examples": fuzzer.mismatches[:MOST_LISTED],
        "events": {name: dict(one.events) for name, one in outcomes.items()},
        "stall_s": {name: round(one.longest_stall_s, 1) for name, one in outcomes.items()},
        "term_s": {name: round(one.longest_term_s, 1) for name, one in outcomes.items()},
        "frames_lost": {name: one.frames_lost for name, one in outcomes.items()},
        "runs": {name: one.run for name, one in outcomes.items()},
        "growth_mb": {name: round(last - first) for name, (first, last) in memory.items()},
        "problems": [f"{name}: {text}" for name, one in outcomes.items() for text in one.problems],
    }


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip()


def add_up(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up parts: counts are summed, and of a longest time or a growth the largest counts."""
    total = copy.deepcopy(parts[0])
    for part in parts[1:]:
        for key in ("parts", "minutes", "seconds", "streams", "refused", "cut", "unanswered"):
            total[key] += part[key]
        for key in ("messages", "mismatches", "frames_lost"):
            _merge(total[key], part[key], operator.add)
        for key in ("stall_s", "term_s", "growth_mb"):
            _merge(total[key], part[key], max)
        for name, events in part["events"].items():
            _merge(total["events"].setdefault(name, {}), events, operator.add)
        for name, run in part["runs"].items():
            _merge_run(total["runs"].setdefault(name, {}), run)
        for key in ("seeds", "examples", "problems"):
            total[key] += part[key]
        total["commit"] = " ".join(dict.fromkeys([*total["commit"].split(), part["commit"]]))
    return total


def _merge(into: dict[str, Any], other: dict[str, Any], join: Callable[[Any, Any], Any]) -> None:
    for key, value in other.items():
        into[key] = join(into[key], value) if key in into else value


def _merge_run(into: dict[str, Any], other: dict[str, Any]) -> None:
    """Add frames and updates; a run has learned if it has in every part."""
    _merge(into, {key: other[key] for key in ("frames", "updates")}, operator.add)
    _merge(into, {"learned": other["learned"]}, operator.and_)
    _merge(into, {"best_return": other["best_return"]}, max)
    _merge(into, {"first_return": other["first_return"]}, min)
    into["last_return"] = other["last_return"]
    _merge(into.setdefault("memory_mb", {}), other["memory_mb"], max)


def table(total: dict[str, Any]) -> str:
    """Return the tables of a part, or of several that were added up, as Markdown."""
    hostile = {kind.name for kind in HOSTILE_RUNS}
    of_faults = [name for name in total["events"] if name not in hostile]
    of_lies = [name for name in total["events"] if name in hostile]
    lines = [line for names in (of_faults, of_lies) if names for line in _rows(total, names)]
    messages = ", ".join(f"{path} {count:,}" for path, count in sorted(total["messages"].items()))
    growth = ", ".join(f"{name} {mb:+} MB" for name, mb in total["growth_mb"].items())
    summary = [
        f"Mutated messages: {sum(total['messages'].values()):,} in {total['streams']:,} streams "
        f"({messages}); {total['refused']:,} streams had the credential of another role, or none.",
        f"Answers that the judges call wrong: {sum(total['mismatches'].values())}; unanswered: "
        f"{total['unanswered']}; not judged, because the process was hit: {total['cut']}.",
        f"Growth of the fuzzed processes: {growth}.",
        f"Problems: {len(total['problems'])}.",
        f"Parts: {total['parts']}, seeds {total['seeds']}, {total['seconds']:,} s, commit "
        f"{total['commit']}, {total['machine']}.",
    ]
    return "\n".join([*lines, *summary])


def _rows(total: dict[str, Any], names: list[str]) -> list[str]:
    """Return a table of some runs, and an empty line."""
    events = {name: total["events"][name] for name in names}
    rows = [["", *names, "together"], ["---"] * (len(names) + 2)]

    def row(title: str, values: dict[str, Any], join: Callable[[Any], Any] | None = None) -> None:
        own = {name: values[name] for name in names}
        whole = str(join(own.values())) if join else ""
        rows.append([title, *map(str, own.values()), whole])

    for kind in sorted({kind for one in events.values() for kind in one}):
        row(kind, {name: one.get(kind, 0) for name, one in events.items()}, sum)
    row("**events**", {name: sum(one.values()) for name, one in events.items()}, sum)
    row("longest stall, s", total["stall_s"], max)
    row("longest SIGTERM, s", total["term_s"], max)
    row("frames lost past a checkpoint", total["frames_lost"], sum)
    runs = {name: total["runs"][name] for name in names}
    for key in ("frames", "updates"):
        row(key, {name: run[key] for name, run in runs.items()}, sum)
    row("return: first, best, last", {
        name: f"{run['first_return']}, {run['best_return']}, {run['last_return']}"
        for name, run in runs.items()
    })  # fmt: skip
    row("learned", {name: "yes" if run["learned"] else "no" for name, run in runs.items()})
    row("memory at the end, MB", {
        name: ", ".join(f"{who} {mb}" for who, mb in run["memory_mb"].items())
        for name, run in runs.items()
    })  # fmt: skip
    return ["| " + " | ".join(cells) + " |" for cells in rows] + [""]
