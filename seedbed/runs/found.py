"""The runs below a folder."""

from collections.abc import Iterator
from pathlib import Path

from seedbed.runtime.exit_codes import RunDirectoryError

_DEPTH = 6


def is_run(path: Path) -> bool:
    """Return whether a folder is a run directory that a learner has written to."""
    return any((path / name).is_file() for name in ("status.json", "progress.csv")) or (
        (path / "experiment.yaml").is_file() and (path / "seedbed.lock").is_file()
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
    found = list(_walk(path, _DEPTH))
    if not found:
        raise RunDirectoryError(f"{path} is no run directory, and no run is below it")
    return found


def _walk(path: Path, depth: int) -> Iterator[Path]:
    if is_run(path):
        yield path
        return
    if depth:
        for child in sorted(path.iterdir()):
            if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
                yield from _walk(child, depth - 1)
