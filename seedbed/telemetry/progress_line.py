"""The line of a terminal that shows a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TextIO

from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.formats import Number, duration, money, number, si_number
from seedbed.telemetry.time_left import TimeLeft
from seedbed.telemetry.windows import FPS_WINDOWS_S


class Part(NamedTuple):
    """A piece of the line.

    Attributes:
        priority: On a narrow terminal, parts with the lowest priority are dropped first.
        short: Shorter text, which is used before any part is dropped; "" is the whole text.
    """

    text: str
    priority: int
    short: str = ""


def progress_line(
    numbers: Mapping[str, Number], limit: Bottleneck, left: TimeLeft | None, waiting: str | None
) -> list[Part]:
    """Return the line's parts, from left to right."""
    fps = "/".join(number(numbers[f"env_fps_{window}s"]) for window in FPS_WINDOWS_S)
    episodes = numbers["return_episodes"]
    returned = f"return {number(numbers['return_mean'], 1)}"
    latency = f"{number(numbers['inference_ms_p50'], 1)}/{number(numbers['inference_ms_p99'], 1)}"
    if waiting:
        last = Part(f"now: {waiting}", 9)
    else:
        last = Part(f"{limit.part}: {limit.sentence}", 9, f"bottleneck: {limit.part}")
    return [
        Part(f"{si_number(numbers['env_frames'])} frames", 8),
        Part(f"{fps} FPS", 7, f"{number(numbers['env_fps_10s'])} FPS"),
        Part(f"{number(numbers['updates_per_s'], 1)} updates/s", 1),
        Part(f"{returned} (last {episodes})" if episodes else returned, 6, returned),
        Part(f"lag {number(numbers['policy_lag_mean'], 1)}", 2),
        Part(f"batch {number(numbers['batch_environments'])}", 0),
        Part(f"inference {latency} ms", 3),
        Part(money(numbers["dollars"]), 4),
        Part(f"ETA {duration(left.seconds)} ({left.condition})", 5, f"ETA {duration(left.seconds)}")
        if left
        else Part("ETA -", 5),
        last,
    ]


class ProgressLine:
    """Writes the line: refreshed in place on a terminal, a new line each time elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._tty = out.isatty()
        self._shown = False

    def show(self, parts: list[Part]) -> None:
        """Show the line now."""
        if self._tty:
            self._out.write(f"\r\x1b[K{fit(parts, self._columns() - 1)}")
            self._shown = True
        else:
            self._out.write(f"{time.strftime('%H:%M:%S')} {fit(parts, None)}\n")
        self._out.flush()

    def close(self) -> None:
        """End the last line."""
        if self._shown:
            self._out.write("\n")
            self._out.flush()
            self._shown = False

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


def fit(parts: Sequence[Part], columns: int | None) -> str:
    """Return the line in so many columns, because a longer one could not be refreshed in place.

    First the bottleneck is only named, then the longest parts become short, then the parts with the
    lowest priority are dropped.

    Args:
        parts: Parts of the line, from left to right; the last one is shortened first.
        columns: Characters that fit; None is no limit.
    """
    line = _join(parts)
    if columns is None or len(line) <= columns:
        return line
    *others, last = parts
    parts = [*others, Part(last.short or last.text, last.priority)]
    while len(line := _join(parts)) > columns and any(part.short for part in parts):
        longest = max((part for part in parts if part.short), key=lambda part: len(part.text))
        parts = [Part(part.short, part.priority) if part is longest else part for part in parts]
    while len(line := _join(parts)) > columns and len(parts) > 1:
        unwanted = min(parts, key=lambda part: part.priority)
        parts = [part for part in parts if part is not unwanted]
    return line if len(line) <= columns else line[: max(0, columns - 1)] + "…"


def _join(parts: Sequence[Part]) -> str:
    return " | ".join(part.text for part in parts)
