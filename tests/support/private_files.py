"""Files of secrets as `seedbed tokens` and `openssl` make them."""

from __future__ import annotations

from pathlib import Path

from seedbed.runtime.files import atomic_write


def write_private(path: Path, text: str | bytes) -> Path:
    """Write a file that its owner alone reads, and return its path."""
    atomic_write(path, text, is_private=True)
    return path
