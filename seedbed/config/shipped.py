"""Experiments that ship with Seedbed, by name."""

import importlib.resources
import shlex
from difflib import get_close_matches
from pathlib import Path

from seedbed.runtime.exit_codes import ConfigError


def shipped_experiments() -> dict[str, Path]:
    """Map the name of every experiment in the package to the file."""
    return _files("experiments")


def shipped_sweeps() -> dict[str, Path]:
    """Map the name of every sweep in the package to the file."""
    return _files("experiments/sweeps")


def _files(folder: str) -> dict[str, Path]:
    path = Path(str(importlib.resources.files("seedbed") / folder))
    return {file.stem: file for file in sorted(path.glob("*.yaml"))}


def experiment_file(path: str | Path) -> Path:
    """Return the file that `path` names: itself, or the shipped experiment of that name.

    Raises:
        SeedbedError: CONFIG: `path` is a folder, or a bare name and neither a file nor a shipped
            experiment.
    """
    file = Path(path)
    shipped = shipped_experiments()
    is_bare = str(file) == file.stem
    if file.is_dir() and not (is_bare and file.name in shipped):
        raise ConfigError(
            f"{path} is a folder, and no run directory: name a YAML file, or a run (`seedbed list "
            f"{shlex.quote(str(path))}` shows those below it)"
        )
    if file.is_file() or not is_bare:
        return file
    if file.name not in shipped:
        near = get_close_matches(file.name, shipped, cutoff=0.4) or sorted(shipped)
        raise ConfigError(
            f"there is no file {file}, and no experiment {file} ships with Seedbed: name a YAML "
            f"file, or one of {', '.join(near)}"
        )
    return shipped[file.name]
