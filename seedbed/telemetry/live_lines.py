"""Lines of a terminal that are refreshed in place, below those that stay."""

import contextlib
from collections.abc import Sequence
from typing import TextIO

from seedbed.runtime.terminal import terminal_size
from seedbed.runtime.text import counted
from seedbed.telemetry.progress_line import COLUMNS, cut


class LiveLines:
    """Shows lines in place on a terminal, and nothing elsewhere.

    Args:
        out: The terminal.

    Attributes:
        is_live: Whether `out` is a terminal.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.is_live = out.isatty()
        self._shown = 0

    def show(self, lines: Sequence[str]) -> None:
        """Put lines in the place of those that were shown last; the last one is always seen.

        Args:
            lines: More than the terminal has rows are left out, and counted.
        """
        if not self.is_live:
            return
        size = terminal_size(self._out)
        room = max(2, size.lines - 1)  # the cursor has a row of its own
        if len(lines) > room:
            left_out = len(lines) - room + 1
            lines = [*lines[: room - 2], f"and {counted(left_out, 'line')} more", lines[-1]]
        columns = min(COLUMNS, size.columns - 1)
        text = "".join(f"{cut(line, columns)}\n" for line in lines)
        self._write(self._back() + text)
        self._shown = len(lines)

    def clear(self) -> None:
        """Remove the lines, so that others can be written there."""
        if self._shown:
            self._write(self._back())
            self.leave()

    def leave(self) -> None:
        """Let the lines stay. Safe in a signal handler."""
        self._shown = 0

    def _back(self) -> str:
        """Return what takes the cursor to the first of the lines, and clears all from there."""
        return f"\r\x1b[{self._shown}A\x1b[J" if self._shown else "\r\x1b[J"

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone ends no run
            self._out.write(text)
            self._out.flush()
