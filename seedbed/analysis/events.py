"""Events of the learners' gossip logs: RUN_DIR/learner-i/gossip/events.csv."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seedbed.runtime.exit_codes import RunDirectoryError

HEADER = "time,kind,iteration,norm,mixed"
# Norm column of a `graph` whose graphs are disconnected.
DISCONNECTED = "void"
_MESSAGE = re.compile(r"(\d+)@(\d+)\*(\S+)")
# Logged weights may miss 1 by so much.
_ROUNDING = 1e-6

Kind = Literal["start", "adopt", "update", "mix", "graph", "snapshot", "lost"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was mixed: its sender, the sender's local iteration, and its weight."""

    sender: int
    version: int
    weight: float


@dataclass(frozen=True, slots=True)
class Event:
    """One row of a log.

    Attributes:
        learner: Rank of the learner that logged it.
        time: Unix seconds by that learner's clock.
        kind: As in the file. `snapshot` is added by `with_snapshots`, and `lost` replaces a mix or
            an adoption whose message is in no log.
        iteration: Local iteration; of a `snapshot` its number C.
        norm: 2-norm of the update vector of an `update`, otherwise 0.
        messages: Messages of a `mix` or an `adopt`.
        alive: Ranks of a `graph`.
        is_disconnected: Whether the graphs of a `graph` no longer lead from every learner to every
            other.
    """

    learner: int
    time: float
    kind: Kind
    iteration: int
    norm: float = 0.0
    messages: tuple[Message, ...] = ()
    alive: tuple[int, ...] = ()
    is_disconnected: bool = False


def events_file(run_dir: Path, learner: int) -> Path:
    """Return the path of a learner's log.

    Args:
        run_dir: Folder of learner-0, learner-1 ...
        learner: Rank of the learner.
    """
    return run_dir / f"learner-{learner}" / "gossip" / "events.csv"


def read_events(file: Path, learner: int) -> list[Event]:
    """Read a learner's events in the order of its file.

    A last line without its end is skipped, because a killed process was writing it.

    Raises:
        SeedbedError: RUN_DIRECTORY, with the file and the number of the damaged line.
    """
    try:
        *lines, _ = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RunDirectoryError(f"cannot read {file}: {error}") from error
    events: list[Event] = []
    version = -1
    for number, line in enumerate(lines, 1):
        try:
            if number == 1:
                if line != HEADER:
                    raise ValueError(f"the header is {HEADER!r}")
                continue
            event = _parse_event(line, learner)
            if event.kind == "update":
                if event.iteration <= version:
                    raise ValueError(f"update {event.iteration} comes after update {version}")
                version = event.iteration
        except ValueError as error:
            raise RunDirectoryError(
                f"line {number} of {file} is damaged ({error}): {line[:80]!r}; nothing after it "
                "can be trusted: analyze a copy of the run without it and the lines below it"
            ) from error
        events.append(event)
    return events


def _parse_event(line: str, learner: int) -> Event:
    fields = line.split(",")
    if len(fields) != 5:
        raise ValueError(f"{len(fields)} fields, and not 5")
    time, kind, iteration, norm, mixed = fields
    at, number = float(time), int(iteration)
    if kind == "start":
        return Event(learner, at, "start", number)
    if kind == "update":
        size = float(norm)
        if not (math.isfinite(size) and size >= 0):
            raise ValueError(f"the norm of an update is {norm}")
        return Event(learner, at, "update", number, size)
    if kind == "graph":
        alive, is_disconnected = tuple(map(int, mixed.split())), norm == DISCONNECTED
        return Event(learner, at, "graph", number, 0.0, (), alive, is_disconnected)
    if kind not in ("mix", "adopt"):
        raise ValueError(f"no such kind: {kind!r}")
    messages = tuple(map(_parse_message, mixed.split()))
    total = sum(message.weight for message in messages)
    if not messages or total > 1 + _ROUNDING or (kind == "adopt" and total < 1 - _ROUNDING):
        raise ValueError(f"the messages weigh {total:g} together")
    return Event(learner, at, "mix" if kind == "mix" else "adopt", number, messages=messages)


def _parse_message(text: str) -> Message:
    match = _MESSAGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not SENDER@VERSION*WEIGHT")
    weight = float(match[3])
    if not 0 <= weight <= 1 + _ROUNDING:
        raise ValueError(f"{text!r} has a weight outside of 0 to 1")
    return Message(int(match[1]), int(match[2]), weight)
