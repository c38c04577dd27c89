"""The line of a terminal that shows a run."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from seedbed.runtime import terminal
from seedbed.runtime.formats import Number, duration, money, number, si_number, significant
from seedbed.runtime.text import counted
from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.time_left import TimeLeft

# Longest line, in columns; `seedbed status` shows the rest.
COLUMNS = 120
# Seconds between two lines where none can be refreshed in place, such as in a log.
LOG_INTERVAL_S = 30.0


def progress_line(
    numbers: Mapping[str, Number],
    limit: Bottleneck,
    left: TimeLeft | None,
    waiting: str | None,
    is_over: bool = False,
) -> list[str]:
    """Return the line's parts, the most important first, because a terminal cuts the rest off.

    Args:
        numbers: The numbers of a snapshot.
        limit: The part that sets the pace.
        left: The nearest stop condition; None if none is in sight.
        waiting: What the run waits for; None while it goes on.
        is_over: Training has ended.
    """
    done = [
        returns(numbers["mean_return"], numbers["mean_return_episodes"]),
        counted(si_number(numbers["env_frames"]), "frame"),
    ]
    rate = [
        f"{number(numbers['env_fps_10s'])} frames/s",
        eta(left.seconds, left.is_limit) if left else eta(None),
    ]
    now = [f"now: {waiting}"] if waiting else []
    if not now and not is_over and limit.part != "unknown":
        now = [f"bound by {limit.part}"]
    return [*done, *([] if is_over else rate), *now, money(numbers["run_dollars"])]


def returns(mean: Number, episodes: Number) -> str:
    """Return the part of the mean return.

    Args:
        mean: Mean return of the last episodes.
        episodes: Number of these episodes.
    """
    return f"return {significant(mean)}" + (f" (last {episodes})" if episodes else "")


def eta(seconds: Number, is_limit: bool = False) -> str:
    """Return the part of the end.

    Args:
        seconds: Time to the nearest stop condition.
        is_limit: Another condition, which cannot be foreseen, may end the run sooner.
    """
    return f"ETA {'at most ' if is_limit and seconds is not None else ''}{duration(seconds)}"


class ProgressLine:
    """Writes the line: refreshed in place on a terminal, a new line each half minute elsewhere.

    Args:
        out: Where the line goes.
        now: Monotonic seconds.
    """

    def __init__(self, out: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._out, self._now = out, now
        self._tty = out.isatty()
        self._shown = False
        self._due = now()
        self._unshown = ""  # newest line of a log that is not due yet
        self._at = 0.0  # its time

    def show(self, parts: Sequence[str]) -> None:
        """Show the line, now or at the latest by `close`."""
        line = " | ".join(parts)
        if self._tty:
            # A longer line could not be refreshed in place.
            columns = min(COLUMNS, terminal.terminal_size(self._out).columns - 1)
            self._write(f"\r\x1b[K{cut(line, columns)}")
            self._shown = True
            return
        self._unshown, self._at = line, time.time()
        if self._now() >= self._due:
            self._due = self._now() + LOG_INTERVAL_S
            self._flush()

    def close(self) -> None:
        """End the last line."""
        if self._shown:
            self._write("\n")
            self._shown = False
        self._flush()

    def _flush(self) -> None:
        if self._unshown:
            if terminal.is_json():
                terminal.print_lines(self._unshown)
            else:
                self._write(f"{terminal.stamp(self._at)} {cut(self._unshown, COLUMNS)}\n")
            self._unshown = ""

    def _write(self, text: str) -> None:
        # A terminal that is gone, or a full volume with the file that takes the lines, ends no run.
        with contextlib.suppress(OSError):
            self._out.write(text)
            self._out.flush()


def cut(line: str, columns: int) -> str:
    """Return a line of at most so many columns, with a mark where it is cut."""
    return line if len(line) <= columns else f"{line[: columns - 1]}…"
