"""What the learners logged of their gossip: RUN_DIR/learner-i/gossip/events.csv."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

HEADER = "time,kind,iteration,norm,mixed"
VOID = "void"
_MESSAGE = re.compile(r"(\d+)@(\d+)\*(\S+)")
_ROUNDING = 1e-6  # by which logged weights may miss 1

Kind = Literal["start", "adopt", "update", "mix", "graph", "snapshot", "lost"]


@dataclass(frozen=True, slots=True)
class Message:
    """One that was mixed in: its sender, the sender's iteration, and its weight."""

    sender: int
    version: int
    weight: float


@dataclass(frozen=True, slots=True)
class Event:
    """One row of a log.

    Attributes:
        learner: whose log it is.
        time: unix seconds by that learner's clock.
        kind: as in the file. `snapshot` is none of its rows but put in between by `order`, and
            `lost` takes the place of a mix or an adoption whose message no log has.
        iteration: local; of a `snapshot` its number C.
        norm: 2-norm of the update vector of an `update`, else 0.
        messages: of a `mix` or an `adopt`.
        alive: ranks of a `graph`.
        void: the graphs of a `graph` no longer lead from every learner to every other.
    """

    learner: int
    time: float
    kind: Kind
    iteration: int
    norm: float = 0.0
    messages: tuple[Message, ...] = ()
    alive: tuple[int, ...] = ()
    void: bool = False


def events_file(run_dir: Path, learner: int) -> Path:
    """Where a learner of a run logs."""
    return run_dir / f"learner-{learner}" / "gossip" / "events.csv"


def read_events(file: Path, learner: int) -> list[Event]:
    """A learner's events in the order of its file.

    A last line without its end is what a killed process was writing: it is left out.

    Raises:
        SeedbedError: RUN_DIRECTORY, with the file and the number of the damaged line.
    """
    try:
        *lines, _ = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SeedbedError(ExitCode.RUN_DIRECTORY, f"cannot read {file}: {error}") from error
    if lines and lines[0] != HEADER:
        raise _damaged(file, 1, lines[0], f"the header is {HEADER!r}")
    events: list[Event] = []
    version = -1
    for number, line in enumerate(lines[1:], 2):
        try:
            event = _event(line, learner)
            if event.kind == "update" and event.iteration <= version:
                raise ValueError(f"update {event.iteration} comes after update {version}")
        except ValueError as error:
            raise _damaged(file, number, line, str(error)) from error
        if event.kind == "update":
            version = event.iteration
        events.append(event)
    return events


def _event(line: str, learner: int) -> Event:
    words = line.split(",")
    if len(words) != 5:
        raise ValueError(f"{len(words)} fields, and not 5")
    time, kind, iteration, norm, mixed = words
    at, number = float(time), int(iteration)
    if kind == "start":
        return Event(learner, at, "start", number)
    if kind == "update":
        size = float(norm)
        if not (math.isfinite(size) and size >= 0):
            raise ValueError(f"the norm of an update is {norm}")
        return Event(learner, at, "update", number, size)
    if kind == "graph":
        ranks = tuple(map(int, mixed.split()))
        return Event(learner, at, "graph", number, alive=ranks, void=norm == VOID)
    if kind not in ("mix", "adopt"):
        raise ValueError(f"no such kind: {kind!r}")
    messages = tuple(map(_message, mixed.split()))
    total = sum(message.weight for message in messages)
    if not messages or total > 1 + _ROUNDING or (kind == "adopt" and total < 1 - _ROUNDING):
        raise ValueError(f"the messages weigh {total:g} together")
    return Event(learner, at, "mix" if kind == "mix" else "adopt", number, messages=messages)


def _message(text: str) -> Message:
    match = _MESSAGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not SENDER@VERSION*WEIGHT")
    weight = float(match[3])
    if not 0 <= weight <= 1 + _ROUNDING:
        raise ValueError(f"{text!r} has a weight outside of 0 to 1")
    return Message(int(match[1]), int(match[2]), weight)


def _damaged(file: Path, number: int, line: str, why: str) -> SeedbedError:
    return SeedbedError(
        ExitCode.RUN_DIRECTORY,
        f"line {number} of {file} is damaged ({why}): {line[:80]!r}; nothing after it can be "
        f"trusted: report on a copy of the run without it and the lines below it",
    )
