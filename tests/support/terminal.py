"""A real terminal of a given size, and what reaches it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Callable
from typing import TextIO


def shown_on(columns: int, rows: int, write: Callable[[TextIO], object]) -> str:
    """Return what `write` has shown on a terminal of so many columns and rows, and `end`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with os.fdopen(theirs, "w") as out:
        write(out)
        out.write("end")
        out.flush()
        shown = b""
        while not shown.endswith(b"end"):  # it passes on as much as it likes at a time
            shown += os.read(ours, 1000)
    os.close(ours)
    return shown.decode()
