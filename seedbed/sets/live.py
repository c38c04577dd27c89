"""A set while it is driven: a line for each run that trains, and one for the whole."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from seedbed.launch.learners_view import learners_line
from seedbed.runtime.formats import duration, money, si_number, significant
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.text import counted
from seedbed.sets.ends import has_failed
from seedbed.sets.folder import Member, read_members
from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.live_lines import LiveLines
from seedbed.telemetry.progress_line import progress_line
from seedbed.telemetry.time_left import TimeLeft


class _Run(NamedTuple):
    state: str
    frames: float
    dollars: float
    score: float | None  # mean return of the newest evaluation
    scored_at: float  # emulator frames of that evaluation


class LiveSet:
    """Shows a set: on a terminal in place, and in a log a line for the whole when a run has ended.

    Args:
        folder: The folder of the set.
        out: Where the lines go.
    """

    def __init__(self, folder: Path, out: TextIO) -> None:
        self._folder = folder
        self._lines = LiveLines(out)
        self._begun = time.monotonic()
        self._ended: dict[str, _Run] = {}

    def tell(self, text: str) -> None:
        """Write a line that stays."""
        self._lines.clear()
        print_lines(text)

    def close(self) -> None:
        """Let the line of the whole stay, on a terminal too."""
        if self._lines.is_live:
            self.tell(self._whole(read_members(self._folder), {}))

    def leave(self) -> None:
        """Write what comes next below the lines. Safe in a signal handler."""
        self._lines.leave()

    def show(self, running: Mapping[str, float]) -> None:
        """Refresh the lines of a terminal.

        Args:
            running: When each run that trains has begun, by its name, in Unix time.
        """
        if self._lines.is_live:
            members = read_members(self._folder)
            lines = [_line(one, running[one.name]) for one in members if one.name in running]
            self._lines.show([*lines, self._whole(members, running)])

    def show_end(self, running: Mapping[str, float]) -> None:
        """Write the line of the whole into a log, after a run has ended.

        Args:
            running: As for `show`.
        """
        if not self._lines.is_live:
            print_lines(self._whole(read_members(self._folder), running))

    def _whole(self, members: Sequence[Member], running: Mapping[str, float]) -> str:
        found = {member.name: self._read(member, member.name in running) for member in members}
        states = [one.state for one in found.values()]
        words = [f"set: {states.count('finished')} of {counted(len(members), 'run')} finished"]
        words += [f"{states.count('failed')} failed"] * ("failed" in states)
        words += [f"{len(running)} running"] * bool(running)
        parts = [
            ", ".join(words),
            duration(time.monotonic() - self._begun),
            money(sum(one.dollars for one in found.values())),
        ]
        # A run that was pruned early may have had a better score than those that go on.
        latest = max(one.scored_at for one in found.values())
        scores = {
            name: one.score for name, one in found.items()
            if one.score is not None and one.scored_at >= latest / 2
        }  # fmt: skip
        if scores:
            best = max(scores, key=lambda name: scores[name])
            parts.append(f"best {significant(scores[best])}, {best}")
        parts.append(f"{si_number(sum(one.frames for one in found.values()))} frames")
        return " | ".join(parts)

    def _read(self, member: Member, is_running: bool) -> _Run:
        if not is_running and member.name in self._ended:
            return self._ended[member.name]
        state = ""
        if not is_running:
            state = "finished" if member.is_finished else "failed" * has_failed(member)
        newest = member.last_evaluation()
        score = float(newest["mean"]) if newest else None
        totals = member.totals()
        scored_at = float(newest["env_frames"]) if newest else 0.0
        run = _Run(state, totals.frames, totals.dollars, score, scored_at)
        if is_running:
            self._ended.pop(member.name, None)
        elif state == "finished":
            self._ended[member.name] = run
        return run


def _line(member: Member, begun: float) -> str:
    statuses = [status for status in member.statuses() if status.get("time", 0.0) >= begun]
    if not statuses:
        return f"{member.name} | starting"
    if len(statuses) > 1:
        return " | ".join([member.name, *learners_line(statuses, len(statuses))])  # type: ignore[arg-type]
    status = statuses[0]
    left = status["eta"]
    parts = progress_line(
        status["numbers"],
        Bottleneck(**status["bottleneck"]),
        TimeLeft(left["seconds"], left["condition"], status["stop"]["mean_return"] is not None)
        if left
        else None,
        status["waiting_for"],
        status["over"] is not None,
    )
    return " | ".join([member.name, *parts])
