"""What the directory of a run says while its processes are hit, and after its end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.checkpoints.store import CheckpointStore
from seedbed.runs.progress import load_progress
from tests.support.processes import parent

LEARNED = 100.0  # mean return of CartPole; a random policy has 22


def alive(pid: int) -> bool:
    return parent(pid) is not None


def children(pid: int) -> list[int]:
    numbers = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())
    return [number for number in numbers if parent(number) == pid]


def status(directory: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((directory / "status.json").read_text()))
    except (OSError, ValueError):
        return {}


def counters(directory: Path) -> dict[str, Any]:
    return dict(status(directory).get("counters", {}))


def updates(directory: Path) -> int:
    return int(counters(directory).get("updates", 0))


def newest_name(directory: Path) -> str:
    """Return the name of the newest checkpoint; empty where there is none."""
    found = sorted((directory / "checkpoints").glob("checkpoint-*.safetensors"))
    return found[-1].name if found else ""


def newest_frames(directory: Path) -> int:
    """Return the frames of the newest whole checkpoint."""
    newest = CheckpointStore(str(directory / "checkpoints")).newest()
    return 0 if newest is None else int(newest.meta["counters"]["env_frames"])


def resumed(directory: Path) -> list[int]:
    """Return the frames at which processes of a learner have resumed, as its log says."""
    text = (directory / "logs" / "learner.log").read_text(errors="replace")
    return [int(number) for number in re.findall(r"resumed at frame (\d+)", text)]


def check_files(directory: Path) -> list[str]:
    """Read every checkpoint and the CSV of a learner; return what is wrong with them."""
    wrong = []
    store = CheckpointStore(str(directory / "checkpoints"))
    for name in store.names():
        try:
            arrays = store.read(name).arrays
        except Exception as error:
            wrong.append(f"{directory}/{name}: {error}")
            continue
        if not all(np.isfinite(one).all() for one in arrays.values() if one.dtype.kind == "f"):
            wrong.append(f"{directory}/{name} holds NaN or infinite numbers")
    if not store.names():
        wrong.append(f"{directory} has no checkpoint")
    head, *rows = (directory / "progress.csv").read_text().splitlines()
    torn = [row for row in rows if row.count(",") != head.count(",")]
    if torn:
        wrong.append(f"{directory}: {len(torn)} of {len(rows)} rows of progress.csv are torn")
    return wrong


def check_rows(directory: Path) -> list[str]:
    """Return what is wrong with the numbers of progress.csv: those that are infinite."""
    head, *rows = (directory / "progress.csv").read_text().splitlines()
    wrong = {
        name
        for row in rows
        for name, text in zip(head.split(","), row.split(","), strict=False)
        if text in ("inf", "-inf")
    }
    return [f"{directory}: {sorted(wrong)} of progress.csv are infinite"] if wrong else []


def returns(directory: Path) -> list[float]:
    """Return the mean returns of the training: the first one, the best and the last."""
    if not (directory / "progress.csv").exists():
        return [0.0] * 3
    means = load_progress(directory)["mean_return"]
    means = means[np.isfinite(means)]
    return [float(means[0]), float(means.max()), float(means[-1])] if len(means) else [0.0] * 3


def results(directories: Sequence[Path]) -> dict[str, Any]:
    """Return what the learners of a run have reached together."""
    means = [returns(directory) for directory in directories]
    first, best, last = (max(column) for column in zip(*means, strict=True))
    total = [counters(directory) for directory in directories]
    return {
        "frames": sum(one["env_frames"] for one in total),
        "updates": sum(one["updates"] for one in total),
        "first_return": round(first, 1),
        "best_return": round(best, 1),
        "last_return": round(last, 1),
        "learned": best >= LEARNED,
    }
