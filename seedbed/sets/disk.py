"""The disk of a set: what its runs take, what is free, and below what no run trains."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seedbed.launch.early_checks import least_free
from seedbed.runtime.paths import shown
from seedbed.runtime.text import counted
from seedbed.sets.folder import Member


def describe_disk(folder: Path, members: Sequence[Member], runs: int) -> str:
    """Return what a set is expected to need beside what it has, and what is free, in words.

    A run is expected to take as much as the largest that has ended.

    Args:
        folder: The folder of the set; it need not exist yet.
        members: The runs of the folder.
        runs: Number of runs that the set is to have.
    """
    sizes = [_size(one.run) for one in members if (one.run / "summary.json").exists()]
    free = f"{_text(_free(folder))} free"
    if not sizes:
        expected = f"disk: what a run takes is measured on the first that ends; {free}"
    else:
        needed = max(sizes) * max(0, runs - len(sizes))
        more = ", which is more than is free" if needed > _free(folder) else ""
        expected = f"disk: {_text(max(sizes))} a run, {_text(needed)} to come; {free}{more}"
    least = _text(least_free(folder))
    return f"{expected}. Where less than {least} is free for each run at once, none trains"


def shortage(folder: Path, members: Sequence[Member]) -> str:
    """Return why a disk has no room for runs beside each other, with both numbers; empty if it has.

    Args:
        folder: The folder of the set.
        members: The runs that train.
    """
    free, needed = _free(folder), sum(least_free(member.run) for member in members)
    if free >= needed:
        return ""
    return (
        f"{shown(folder)} has {_text(free)} free, and logs and checkpoints of "
        f"{counted(len(members), 'run')} need {_text(needed)}: free or enlarge the volume, and "
        "the same command goes on"
    )


def _free(folder: Path) -> int:
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    return shutil.disk_usage(there).free


def _size(run: Path) -> int:
    """Return the bytes of all files of a run."""
    found = 0
    for parent, _, names in os.walk(run):
        for name in names:
            with suppress(FileNotFoundError):  # a checkpoint that was replaced meanwhile
                found += (Path(parent) / name).lstat().st_size
    return found


def _text(size: float) -> str:
    return f"{size / 2**20:,.{0 if size >= 10 * 2**20 else 1}f} MiB"
