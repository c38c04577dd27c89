"""`start`: seconds from a command to the first update, and to the first answer of a resumed run."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.child import ROOT
from bench.command import TrainingRun
from bench.figures import series, series_of
from bench.plan import Plan

EXPERIMENTS = ("cartpole-vtrace", "pong-vtrace")
# A checkpoint is written at the end; the run goes on from it.
ALSO = ("--set", "evaluation.at_end=false", "--set", "evaluation.every_frames=0")
UPDATES = 5


def start(plan: Plan) -> dict[str, Any]:
    """Measure both, each in a new run directory, and importing the actor's program."""
    cases = []
    for name in EXPERIMENTS:
        turns = [_turn(plan, name, number) for number in range(plan.runs)]
        cases.append({"experiment": name, **series_of(turns)})
    imports = [_import_cpu_s() for _ in range(plan.runs)]
    return {"cases": cases, "actor_import_cpu_s": series(imports)}


def _turn(plan: Plan, name: str, number: int) -> dict[str, float]:
    path, run_dir = f"experiments/{name}.yaml", plan.folder / f"start-{name}-{number}"
    began = time.perf_counter()
    with TrainingRun(path, run_dir, *ALSO) as first:
        first_update_s = _seconds_until(first, began, "updates", 1)
        first.wait_for_updates(UPDATES)
    began = time.perf_counter()
    with TrainingRun(path, run_dir, *ALSO) as again:
        stopped = json.loads((run_dir / "status.json").read_text())
        frames = stopped["counters"]["env_frames"]
        resumed_s = _seconds_until(again, began, "env_frames", frames + 1)
    return {"first_update_s": first_update_s, "resumed_s": resumed_s}


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
