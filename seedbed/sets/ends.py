"""How the runs of a set have ended so far, a file for each: one process writes it at a time."""

import json
from pathlib import Path
from typing import TypedDict

from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.files import atomic_write
from seedbed.sets.folder import Member


class End(TypedDict):
    """One end of a run that has failed."""

    code: int  # as of `subprocess`: a signal is below zero
    cause: str
    env_frames: int  # at which it has ended


def _file(member: Member) -> Path:
    return member.file.parent / "set" / "ends" / f"{member.name}.json"


def read_ends(member: Member) -> list[End]:
    """Return the failed ends of a run, the newest one last; none of one that never failed."""
    try:
        return list(json.loads(_file(member).read_text()))
    except (OSError, ValueError, TypeError):
        return []


def write_ends(member: Member, ends: list[End]) -> None:
    """Replace the ends of a run.

    Raises:
        OSError: The file cannot be written.
    """
    file = _file(member)
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, json.dumps(ends, indent=1) + "\n")


def has_failed(member: Member) -> bool:
    """Return whether a run has failed and was not finished since."""
    return bool(read_ends(member)) and not member.is_finished


def code_name(code: int) -> str:
    """Return the return code of a failed run in words, without its help.

    Args:
        code: As of `subprocess`: a signal is below zero, and 0 is a run that ended too early.
    """
    if not code:
        return "not finished"
    if code < 0:
        return f"signal {-code}"
    return f"exit code {code}" + (f" ({ExitCode(code).name})" if code in set(ExitCode) else "")
