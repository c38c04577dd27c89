"""Rows of `seedbed list` for the releases of a cluster."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from seedbed.deploy.plan import first_pod
from seedbed.deploy.programs import run
from seedbed.deploy.releases import METER_SILENT_S, Release, releases_of
from seedbed.runs.standing import UNKNOWN, standing_of
from seedbed.runtime.exit_codes import SeedbedError


def has_cluster() -> bool:
    """Return whether kubectl is here, with a cluster in its configuration."""
    files = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    there = any(Path(file).is_file() for file in files.split(os.pathsep) if file)
    return there and shutil.which("kubectl") is not None


def rows_of(namespace: str) -> list[dict[str, Any]]:
    """Return what is shown of each release: null where it is not known.

    Args:
        namespace: Its namespace; empty for all.

    Raises:
        SeedbedError: DEPLOY, no cluster answers, or the account may not read there.
    """
    return [_row(release) for release in releases_of(namespace)]


def _row(release: Release) -> dict[str, Any]:
    place = f"{release.namespace}/{release.name}"
    row = {"run": place, "path": None, "state": "begun", **UNKNOWN, "dollars": None}
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
