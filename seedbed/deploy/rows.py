"""Rows of `seedbed list` for the releases and the sets of a cluster."""

import json
import time
from collections import Counter
from typing import Any

from seedbed.deploy.plan import first_pod
from seedbed.deploy.programs import run
from seedbed.deploy.releases import METER_SILENT_S, Release
from seedbed.deploy.set_releases import (
    ClusterSet,
    Found,
    RunEntry,
    seconds_left,
    states_in_words,
)
from seedbed.runs.standing import UNKNOWN, standing_of
from seedbed.runtime.exit_codes import SeedbedError


def rows_of(found: Found) -> list[dict[str, Any]]:
    """Return what is shown of each release and each set: null where it is not known.

    The runs of a set are not among them.
    """
    return [*map(row_of_release, found.releases), *map(row_of_set, found.sets)]


def rows_of_runs(one: ClusterSet) -> list[dict[str, Any]]:
    """Return what is shown of each run of a set: null where it is not known."""
    new: dict[str, RunEntry] = {name: {"state": "starting"} for name in one.awake}
    runs = one.runs
    runs |= {name: entry for name, entry in new.items() if name not in runs}
    return [
        {
            **_nothing_of(name),
            **{"state": entry["state"], "reason": entry.get("reason") or None},
            "env_frames": entry.get("frames"),
            "goal": entry.get("goal"),
            "done": _done(entry),
            "evaluation_mean": entry.get("score"),
            "dollars": entry.get("dollars"),
            "seconds_left": entry.get("seconds_left"),
            "failures": entry.get("failures", 0),
            "preemptions": entry.get("preemptions", 0),
        }
        for name, entry in runs.items()
    ]


def row_of_set(one: ClusterSet) -> dict[str, Any]:
    """Return what is shown of a set: null where it is not known."""
    runs, state = one.runs, one.state
    row = _nothing_of(f"{one.namespace}/{one.name}")
    if not runs:
        return row | {"states": {}}
    entries = list(runs.values())
    done = [share for entry in entries if (share := _done(entry)) is not None]
    scores = [x for entry in entries if (x := entry.get("score")) is not None]
    row |= {
        "state": states_in_words(runs),
        "states": dict(Counter(entry["state"] for entry in entries)),
        "env_frames": sum(entry.get("frames") or 0 for entry in entries),
        "goal": sum(entry.get("goal") or 0 for entry in entries) or None,
        "done": sum(done) / len(entries) if done else None,
        "evaluation_mean": max(scores, default=None),
        "seconds_left": seconds_left(entries),
    }
    if "dollars" in state:
        row["dollars"] = float(state["dollars"])
    word = "paused" if one.paused else "SILENT" if one.is_silent() and not one.is_over else ""
    if word:
        row |= {"state": f"{word}: {row['state']}", "seconds_left": None}
    return row


def _done(entry: RunEntry) -> float | None:
    """Return the share of a run; 1 where it has met its end, None where it is unknown."""
    if entry["state"] in ("finished", "pruned"):
        return 1.0
    if entry.get("frames") is None or not entry.get("goal"):
        return None
    return min(1.0, (entry["frames"] or 0) / (entry["goal"] or 1))


def _nothing_of(name: str) -> dict[str, Any]:
    return {"run": name, "path": None, "state": "begun", **UNKNOWN, "dollars": None}


def row_of_release(release: Release) -> dict[str, Any]:
    """Return what is shown of a release: null where it is not known."""
    place = f"{release.namespace}/{release.name}"
    row = _nothing_of(place)
    if (state := release.state) is None:  # without a meter
        return {**row, **_by_learner(release)}
    if "dollars" in state:
        row["dollars"] = float(state["dollars"])
    progress = json.loads(state.get("progress", "{}"))
    if progress and progress["run"] == state.get("run"):
        row |= {name: progress[name] for name in ("state", *UNKNOWN)}
    age_s = time.time() - float(state.get("unixTime", time.time()))
    held = release.hold[0] if release.hold else "waiting" if state.get("waiting") else ""
    if not held and row["state"] == "finished":  # what the meter has kept of before it resumes
        row["state"] = "begun"
    if held or age_s > METER_SILENT_S:
        row |= {"state": held or "SILENT", "seconds_left": None}
    return row


def _by_learner(release: Release) -> dict[str, Any]:
    """Return the row by the status that the first learner has written; {} where it has none."""
    (learner, *_) = release.learners()
    pod, file = first_pod(learner.workload), f"{learner.run_dir}/status.json"
    where = f"--namespace={release.namespace}"
    try:
        status = json.loads(run("kubectl", where, "exec", pod, "-c=learner", "--", "cat", file))
    except (SeedbedError, ValueError):  # at zero, or not started
        return {}
    frames = status["learners"].get("env_frames", status["counters"]["env_frames"])
    standing = standing_of([status], frames, status["evaluation"] or {})
    return {**standing, "state": status["state"], "dollars": status["counters"]["dollars"]}
