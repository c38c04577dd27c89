"""Runs of a set that a person has stopped: they are not started again unasked."""

from pathlib import Path

from seedbed.sets.folder import Member


def _file(member: Member) -> Path:
    return member.file.parent / "set" / "stopped" / member.name


def mark_stopped(member: Member) -> None:
    """Keep a run from being started.

    Raises:
        OSError: The mark cannot be written.
    """
    file = _file(member)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def is_stopped(member: Member) -> bool:
    """Return whether a person has stopped a run."""
    return _file(member).exists()


def unmark(member: Member) -> None:
    """Let a run be started again."""
    _file(member).unlink(missing_ok=True)
