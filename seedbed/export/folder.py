"""The folder of an exported policy."""

from pathlib import Path

from seedbed.runtime.exit_codes import ExitCode, SeedbedError


def check_empty(directory: str | Path) -> None:
    """Refuse a folder that has files, before the policy is loaded and not after it.

    Raises:
        SeedbedError: USAGE, the folder is not empty, or is a file.
    """
    directory = Path(directory)
    if directory.exists() and not directory.is_dir():
        raise SeedbedError(ExitCode.USAGE, f"{directory} is a file: name another DIR")
    if directory.is_dir() and any(directory.iterdir()):
        raise SeedbedError(
            ExitCode.USAGE,
            f"{directory} is not empty, and nothing is overwritten: name another DIR",
        )
