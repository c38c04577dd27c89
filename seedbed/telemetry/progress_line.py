"""The line of a terminal that shows a run."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.formats import Number, duration, money, number, si_number
from seedbed.telemetry.time_left import TimeLeft
from seedbed.telemetry.windows import FPS_WINDOWS_S


def progress_line(
    numbers: Mapping[str, Number], limit: Bottleneck, left: TimeLeft | None, waiting: str | None
) -> list[str]:
    """Return the line's parts, the most important first, because a terminal cuts the rest off."""
    fps = "/".join(number(numbers[f"env_fps_{window}s"]) for window in FPS_WINDOWS_S)
    latency = f"{number(numbers['inference_ms_p50'], 1)}/{number(numbers['inference_ms_p99'], 1)}"
    episodes = numbers["return_episodes"]
    return [
        f"return {number(numbers['return_mean'], 1)}" + (f" (last {episodes})" if episodes else ""),
        f"{si_number(numbers['env_frames'])} frames",
        f"{fps} FPS",
        f"now: {waiting}" if waiting else f"{limit.part}: {limit.sentence}",
        f"ETA {duration(left.seconds)} ({left.condition})" if left else "ETA -",
        money(numbers["dollars"]),
        f"lag {number(numbers['policy_lag_mean'], 1)}",
        f"{number(numbers['updates_per_s'], 1)} updates/s",
        f"inference {latency} ms",
        f"batch {number(numbers['batch_environments'])}",
    ]


class ProgressLine:
    """Writes the line: refreshed in place on a terminal, a new line each time elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._tty = out.isatty()
        self._shown = False

    def show(self, parts: Sequence[str]) -> None:
        """Show the line now."""
        line = " | ".join(parts)
        if self._tty:
            # A longer line could not be refreshed in place.
            columns = self._columns() - 1
            self._write(f"\r\x1b[K{line if len(line) <= columns else line[: columns - 1] + '…'}")
            self._shown = True
        else:
            self._write(f"{time.strftime('%H:%M:%S')} {line}\n")

    def close(self) -> None:
        """End the last line."""
        if self._shown:
            self._write("\n")
            self._shown = False

    def _write(self, text: str) -> None:
        # A terminal that is gone, or a full volume with the file that takes the lines, ends no run.
        with contextlib.suppress(OSError):
            self._out.write(text)
            self._out.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80
