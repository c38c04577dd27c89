"""A volume of a known size, and files that fill it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 2**20


@contextmanager
def mounted(path: Path, size: int) -> Iterator[bool]:
    """Mount a volume in memory; yield whether this process may.

    Args:
        path: A new folder.
        size: MiB of the volume.
    """
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(path)]
    can = shutil.which("mount") is not None
    can = can and not subprocess.run(mount, capture_output=True, check=False).returncode
    try:
        yield can
    finally:
        if can:
            subprocess.run(["umount", "-l", str(path)], check=True)


def put(file: Path, size: int) -> None:
    """Write a file of so many bytes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, size)
