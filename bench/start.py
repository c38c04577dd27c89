"""`start`: seconds from a command to the first update, and to the first answer of a resumed run.

Of a run that goes on with new actors, and of a killed learner whose actors have waited for it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from bench.child import ROOT
from bench.command import Command, TrainingRun
from bench.figures import in_turn, series
from bench.plan import Plan
from bench.report import Table
from bench.sides import free_port

EXPERIMENTS = ("cartpole-vtrace", "pong-vtrace")
# A checkpoint is written at the end; the run goes on from it.
ALSO = ("--set", "evaluation.at_end=false", "--set", "evaluation.every_frames=0")
UPDATES = 5
TABLES = [
    Table(
        "from the command on, seconds (importing the actor: {actor_import_cpu_s[median]:.2f} s of "
        "CPU)",
        "experiment | first update | goal | first answer of a resumed run | of a killed learner, "
        "to actors that wait | goal",
        "{experiment} | {first_update_s:.1f} | 8 | {resumed_s:.1f} | {restarted_s:.1f} | 5",
    )
]


def start(plan: Plan) -> dict[str, Any]:
    """Measure all, each in a new run directory, and importing the actor's program."""
    cases = []
    for name in plan.pick(EXPERIMENTS, EXPERIMENTS[:1]):
        figures = in_turn(plan.runs, {"": partial(_turn, plan, name, count())})
        cases.append({"experiment": name, **figures})
    imports = [_import_cpu_s() for _ in range(plan.runs)]
    return {"cases": cases, "actor_import_cpu_s": series(imports)}


def _turn(plan: Plan, name: str, numbers: Iterator[int]) -> dict[str, float]:
    path, run_dir = f"experiments/{name}.yaml", plan.folder / f"start-{name}-{next(numbers)}"
    began = time.perf_counter()
    with TrainingRun(path, run_dir, *ALSO) as first:
        first_update_s = _seconds_until(first, began, "updates", 1)
        first.wait_for_updates(UPDATES)
    began = time.perf_counter()
    with TrainingRun(path, run_dir, *ALSO) as again:
        stopped = json.loads((run_dir / "status.json").read_text())
        frames = stopped["counters"]["env_frames"]
        resumed_s = _seconds_until(again, began, "env_frames", frames + 1)
    return {
        "first_update_s": first_update_s,
        "resumed_s": resumed_s,
        "restarted_s": _restarted_s(plan, path, run_dir),
    }


def _restarted_s(plan: Plan, path: str, run_dir: Path) -> float:
    """Return the seconds from the start of a killed learner to its first answer."""
    port = free_port()
    log = plan.folder / f"{run_dir.name}-actor.log"
    actor = Command(log, "actor", path, f"--learner=127.0.0.1:{port}", "--index=0")
    with actor:
        with TrainingRun(path, run_dir, *ALSO, port=port) as killed:
            killed.wait_for_updates(killed.status()["counters"]["updates"] + UPDATES)
            killed.kill()
        began = time.perf_counter()
        with TrainingRun(path, run_dir, *ALSO, port=port) as again:
            frames = again.status()["counters"]["env_frames"]  # of its checkpoint
            return _seconds_until(again, began, "env_frames", frames + 1)


def _seconds_until(run: TrainingRun, began: float, counter: str, count: int) -> float:
    while not run.socket.exists():  # a channel that finds none waits a second
        run.check()
        time.sleep(0.02)
    while True:
        status = run.status()
        if status["counters"][counter] >= count:
            seconds: float = status["read_at"] - began
            return seconds
        time.sleep(0.02)


def _import_cpu_s() -> float:
    before = os.times()
    command = [sys.executable, "-c", "import seedbed.services.actor.actor"]
    subprocess.run(command, check=True, cwd=Path(ROOT))
    after = os.times()
    return after.children_user + after.children_system - before[2] - before[3]
