"""The runs below a folder."""

import logging
from collections.abc import Iterator
from pathlib import Path

from seedbed.runs.layout import learner_directories
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.text import counted

log = logging.getLogger(__name__)

_DEPTH = 6


def is_run(path: Path) -> bool:
    """Return whether a folder is a run directory that a learner has written to."""
    if any((path / name).is_file() for name in ("status.json", "progress.csv")):
        return True
    # Of several learners each has its own folder. Only a run that trains here has a lock.
    return (path / "experiment.yaml").is_file() and (
        (path / "seedbed.lock").is_file() or bool(learner_directories(path))
    )


def runs_below(path: Path) -> list[Path]:
    """List the run directories at and below a folder, in the order of their names.

    The learners and hosts of a run are parts of it, and links are not followed.

    Raises:
        SeedbedError: RUN_DIRECTORY: there is no such folder, or no run in it.
    """
    if not path.is_dir():
        kind = "is a file" if path.exists() else "does not exist"
        raise RunDirectoryError(f"{path} {kind}: name a run directory, or a folder of runs")
    unreadable: list[OSError] = []
    found = list(_walk(path, _DEPTH, unreadable))
    if unreadable:
        text = "left out: %s that cannot be read, such as %s (%s)"
        first = unreadable[0]
        log.warning(text, counted(len(unreadable), "folder"), first.filename, first.strerror)
    if not found:
        raise RunDirectoryError(f"{path} is no run directory, and no run is below it")
    return found


def _walk(path: Path, depth: int, unreadable: list[OSError]) -> Iterator[Path]:
    try:
        if is_run(path):
            yield path
            return
        children = sorted(path.iterdir()) if depth else []
    except OSError as error:
        unreadable.append(error)
        return
    for child in children:
        if not child.name.startswith(".") and not child.is_symlink() and child.is_dir():
            yield from _walk(child, depth - 1, unreadable)
