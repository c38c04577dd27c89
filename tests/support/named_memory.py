"""Shared memory with a name, which outlives the processes that made it."""

from __future__ import annotations

from pathlib import Path


def named_memory() -> set[Path]:
    """What lies in /dev/shm, but for that of ViZDoom's engines, which tests beside may start."""
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("ViZDoom")}
