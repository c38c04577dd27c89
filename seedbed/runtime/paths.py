"""Paths of a command: of the folder in which it was started, wherever other code goes later."""

from pathlib import Path

# An environment may change the folder of its process.
try:
    STARTED_IN = Path.cwd()
except FileNotFoundError:  # deleted
    STARTED_IN = Path("/")


def absolute(path: str | Path) -> Path:
    """Return a path of this machine as an absolute one.

    Args:
        path: relative to the folder in which the process was started, or absolute.
    """
    return STARTED_IN / path


def shown(path: str | Path) -> str:
    """Return a path as a person would type it: relative where it is below that folder.

    Args:
        path: absolute, or relative to that folder.
    """
    path = absolute(path)
    return str(path.relative_to(STARTED_IN) if path.is_relative_to(STARTED_IN) else path)
