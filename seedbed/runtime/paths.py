"""Paths of a command: of the folder in which it was started, wherever other code goes later."""

from pathlib import Path

_started_in: Path | None = None


def started_here() -> Path:
    """Take paths from the current folder from now on, and return it.

    An environment may change the folder of its process.
    """
    global _started_in
    try:
        _started_in = Path.cwd()
    except FileNotFoundError:  # deleted
        _started_in = Path("/")
    return _started_in


def absolute(path: str | Path) -> Path:
    """Return a path of this machine as an absolute one.

    Args:
        path: relative to the folder in which the command was started, or absolute.
    """
    return (_started_in or Path.cwd()) / path


def shown(path: str | Path) -> str:
    """Return a path as a person would type it: relative where it is below that folder.

    Args:
        path: absolute, or relative to that folder.
    """
    path, here = absolute(path), absolute("")
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
