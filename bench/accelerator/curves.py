"""Pong and Breakout by V-trace in the minutes that are left: runs that go on from call to call."""

import csv
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.accelerator.context import Context
from bench.accelerator.session import Case, Part
from bench.machine import actor_cores

EXPERIMENT = "experiments/pong-vtrace.yaml"
START_S = 60.0  # before a slice trains
POINTS = 400  # of a curve in the JSON
MOST = 0.35  # of the minutes, where everything before was quick


def curves(context: Context, share: float, minutes: float) -> Part:
    """Return the part: slices of each game's run, as many as may fit.

    A slice resumes the run directory of the one before, so that a call that is cut off loses what
    was trained since the last checkpoint and no more.
    """
    sizes = context.sizes
    fitting = math.floor(MOST * 60 * minutes / (len(sizes.curve_games) * (sizes.curve_s + START_S)))
    slices = max(1, min(fitting, sizes.curve_slices))

    def slice_of(_: float, game: str, number: int) -> dict[str, Any]:
        run_dir = context.folder / f"curve-{game.lower()}"
        options = {
            "environment.id": f"atari:{game}",
            "learner.backend": context.backend,
            "learner.checkpoint.every_s": 60,
            "logging.interval_s": 0.5 if sizes.small_network else 5,
            "evaluation.at_end": "false",
            # Only the minutes end it: a run that is over would not be resumed.
            "stop.env_frames": 0,
            "stop.mean_return": "null",
            "actor.processes": max(1, actor_cores() // 2),
        }
        chosen = [text for name, value in options.items() for text in ("--set", f"{name}={value}")]
        began = time.monotonic()
        with context.train(EXPERIMENT, run_dir.name, *chosen) as run:
            before = run.status()["counters"]["updates"]
            run.wait_for_updates(before + 1)
            start_s = time.monotonic() - began
            ends = time.monotonic() + sizes.curve_s
            while run.exit_code is None and time.monotonic() < ends:
                time.sleep(min(1.0, sizes.curve_s))
            run.terminate()  # it writes a checkpoint
        frames, curve = read_progress(run_dir / "progress.csv")
        return {
            "game": game,
            "slice": number,
            "seconds_to_first_update": start_s,
            "env_frames": frames,
            "mean_return": curve[-1]["mean_return"] if curve else None,
            "curve": curve[:: max(1, len(curve) // POINTS)],
        }

    cases = [
        Case(f"{game}/{number}", partial(slice_of, game=game, number=number), START_S)
        for number in range(1, slices + 1)
        for game in sizes.curve_games
    ]
    return Part("curves", share, cases)


def read_progress(path: Path) -> tuple[float, list[dict[str, float]]]:
    """Return the newest frames of a progress.csv, and its lines that have a mean return."""
    if not path.exists():
        return 0.0, []
    with path.open() as file:
        rows = list(csv.DictReader(file))
    names = ("env_frames", "run_seconds", "mean_return")
    curve = [{name: float(row[name]) for name in names} for row in rows if row["mean_return"]]
    return (float(rows[-1]["env_frames"]) if rows else 0.0), curve
