"""Experiments that ship with Seedbed, by name."""

import importlib.resources
from difflib import get_close_matches
from pathlib import Path

from seedbed.runtime.exit_codes import ConfigError


def shipped_experiments() -> dict[str, Path]:
    """Map the name of every experiment in the package to the file."""
    folder = Path(str(importlib.resources.files("seedbed") / "experiments"))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def experiment_file(path: str | Path) -> Path:
    """Return the file that `path` names: itself, or the shipped experiment of that name.

    Raises:
        SeedbedError: CONFIG: `path` is a bare name, and neither a file nor a shipped experiment.
    """
    file = Path(path)
    if file.is_file() or str(file) != file.stem:
        return file
    shipped = shipped_experiments()
    if file.name not in shipped:
        near = get_close_matches(file.name, shipped, cutoff=0.4) or sorted(shipped)
        raise ConfigError(
            f"there is no file {file}, and no experiment {file} ships with Seedbed: name a YAML "
            f"file, or one of {', '.join(near)}"
        )
    return shipped[file.name]
