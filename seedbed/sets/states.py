"""The state of a run of a set, by its files: the one rule of the status and of comparisons."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from seedbed.runs.layout import learner_directories
from seedbed.runtime.exit_codes import ExitCode
from seedbed.sets.ends import has_failed, read_ends
from seedbed.sets.folder import Member, Rung
from seedbed.sets.stopped import is_stopped

State = Literal[
    "finished", "failed", "diverged", "pruned", "at its rung", "stopped", "unfinished", "to begin"
]
# States of a run that has no score to come.
LOST: tuple[State, ...] = ("failed", "diverged")


def member_of(run: Path, rung: Rung | None = None) -> Member:
    """Return a run directory as a member of its set, which it may not have."""
    return Member(run.parent.parent / f"{run.name}.yaml", {}, rung)


def run_state(member: Member, summary: Mapping[str, Any], status: Mapping[str, Any]) -> State:
    """Return the state of a run.

    Args:
        member: The run.
        summary: Its summary.json; empty where it has not ended.
        status: Its status.json; empty where it has not begun.
    """
    if has_failed(member):
        return "diverged" if read_ends(member)[-1]["code"] == ExitCode.DIVERGED else "failed"
    # One that was stopped during its last evaluation has a summary, and is not finished.
    if summary.get("stop_reason") and (not is_stopped(member) or member.is_finished):
        rung = member.rung
        if rung is None or summary.get("env_frames", rung.stop) >= rung.stop:
            return "finished"
        return "pruned" if rung.is_pruned else "at its rung"
    reason = str(status.get("stop_reason") or "")
    if is_stopped(member) or reason.startswith("signal "):
        return "stopped"
    if reason and not reason.startswith(("stop.", "learner ")):
        return "failed"
    return "unfinished" if status or learner_directories(member.run) else "to begin"
