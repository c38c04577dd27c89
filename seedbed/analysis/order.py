"""One order of all learners' events, in which no message is used before it is made."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from seedbed.analysis.events import Event
from seedbed.runtime.exit_codes import ExitCode, SeedbedError


def with_snapshots(events: Sequence[Event], numbers: Sequence[int], every_s: float) -> list[Event]:
    """A learner's events, and where its snapshots were taken.

    Args:
        events: of one learner, in its file's order; not empty.
        numbers: of the snapshots, rising. Number C shows the parameters after the last event
            before the time C · every_s.
        every_s: seconds.
    """
    merged: list[Event] = []
    waiting = [(number, number * every_s) for number in reversed(numbers)]
    for event in events:
        while waiting and waiting[-1][1] <= event.time:
            merged.append(_snapshot(event.learner, *waiting.pop()))
        merged.append(event)
    merged += [_snapshot(events[0].learner, *item) for item in reversed(waiting)]
    return merged


def doubtful_snapshots(events: Sequence[Event]) -> set[int]:
    """Numbers of the snapshots between a `start` and its `adopt`: of parameters that were loaded,
    never used, and are in no other event."""
    doubtful: set[int] = set()
    loaded: list[int] | None = None
    for event in events:
        if event.kind == "start":
            loaded = []
        elif event.kind == "snapshot" and loaded is not None:
            loaded.append(event.iteration)
        elif event.kind == "adopt":
            doubtful |= set(loaded or ())
        if event.kind in ("adopt", "update", "mix"):
            loaded = None
    return doubtful


def order(logs: Sequence[Sequence[Event]]) -> list[Event]:
    """All events in one order: each learner's as they are, a mix or an adoption after the update
    whose message it uses, and for the rest by time (ties by rank).

    Clocks of two machines differ, so the times alone would put effects before their causes.

    Args:
        logs: of learner 0, 1, ...

    Raises:
        SeedbedError: RUN_DIRECTORY; messages are used before they can have been made.
    """
    made = [{event.iteration for event in log if event.kind == "update"} for log in logs]
    logs = [[_told(event, made) for event in log] for log in logs]
    ordered: list[Event] = []
    newest = [-1] * len(logs)  # version of each learner's last update that is in the order
    position = [0] * len(logs)
    total = sum(map(len, logs))
    while len(ordered) < total:
        first, rank = math.inf, -1
        for learner, log in enumerate(logs):
            if position[learner] == len(log) or log[position[learner]].time >= first:
                continue
            event = log[position[learner]]
            if all(message.version <= newest[message.sender] for message in event.messages):
                first, rank = event.time, learner
        if rank < 0:
            raise _circle(
                [log[at] for log, at in zip(logs, position, strict=True) if at < len(log)]
            )
        event = logs[rank][position[rank]]
        position[rank] += 1
        if event.kind == "update":
            newest[rank] = event.iteration
        ordered.append(event)
    return ordered


def _told(event: Event, made: Sequence[Collection[int]]) -> Event:
    """The event, or that the learner went on with what no log tells: a peer that lost its
    directory has begun a new log, with versions that it had not used before.
    """
    for message in event.messages:
        if message.sender >= len(made) or message.version not in made[message.sender]:
            return Event(event.learner, event.time, "lost", event.iteration)
    return event


def _snapshot(learner: int, number: int, time: float) -> Event:
    return Event(learner, time, "snapshot", number)


def _circle(heads: list[Event]) -> SeedbedError:
    event = heads[0]
    message = event.messages[0]
    return SeedbedError(
        ExitCode.RUN_DIRECTORY,
        f"learner {event.learner} mixed at iteration {event.iteration} a message of learner "
        f"{message.sender}, version {message.version}, which by the logs came later: "
        "are they all of one run?",
    )
