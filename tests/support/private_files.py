"""Files of secrets as `seedbed tokens` and `openssl` make them."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str | bytes) -> Path:
    """Write a file that its owner alone reads, and return its path."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)
    return path
