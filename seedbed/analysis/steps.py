"""The realised mixing, event by event: which row of the state each event makes of which others.

The state at a moment is n learners' parameters and, as in the usual treatment of delays
(Hadjicostis and Charalambous 2014), one more row for each message that is still to be mixed
somewhere. Every event's matrix is the identity but for one or two rows, so it is kept as those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from seedbed.analysis.events import Event


@dataclass(slots=True)
class Step:
    """An event as operations on the rows of the state; row i < n is learner i.

    Attributes:
        event: the event.
        own: weight of the learner's own row in a mix (0 in an adoption).
        sources: rows that are mixed in, with their weights.
        copy_to: row that becomes a copy of the learner's: its message, or its snapshot. None where
            nobody mixes the message.
        freed: rows that nobody needs after this step.
        lost: the learner went on from parameters that no event tells: a start without adoption,
            or a message that is in no log.
    """

    event: Event
    own: float = 1.0
    sources: list[tuple[int, float]] = field(default_factory=list)
    copy_to: int | None = None
    freed: list[int] = field(default_factory=list)
    lost: bool = False


def steps_of(events: Sequence[Event], learners: int) -> tuple[list[Step], int]:
    """The steps of all events in their order, and how many rows the state needs.

    A snapshot is a row too, from the moment it was taken until the last learner's of its number:
    so it does not matter whether all of them were taken at one moment of the common order.

    Args:
        events: of all learners, in one order (`order.order`).
        learners: n.
    """
    uses = Counter(
        (message.sender, message.version) for event in events for message in event.messages
    )
    adopts = _adopting_starts(events)
    rows: dict[tuple[int, int], int] = {}
    snapshots: dict[int, list[int]] = {}
    free: list[int] = []
    size = learners
    began: set[int] = set()
    steps: list[Step] = []

    def row() -> int:
        nonlocal size
        if free:
            return free.pop()
        size += 1
        return size - 1

    for at, event in enumerate(events):
        step = Step(event)
        if event.kind == "start":
            step.lost = event.learner in began and at not in adopts
            began.add(event.learner)
        elif event.kind == "lost":
            step.lost = True
        elif event.kind == "update":
            key = (event.learner, event.iteration)
            if uses[key]:
                step.copy_to = rows[key] = row()
        elif event.kind == "snapshot":
            step.copy_to = row()
            taken = snapshots.setdefault(event.iteration, [])
            taken.append(step.copy_to)
            if len(taken) == learners:
                step.freed = snapshots.pop(event.iteration)
        elif event.messages:
            for message in event.messages:
                key = (message.sender, message.version)
                step.sources.append((rows[key], message.weight))
                uses[key] -= 1
                if not uses[key]:
                    step.freed.append(rows.pop(key))
            total = sum(weight for _, weight in step.sources)
            step.own = 0.0 if event.kind == "adopt" else max(0.0, 1.0 - total)
        free += step.freed
        steps.append(step)
    return steps, size


def _adopting_starts(events: Sequence[Event]) -> set[int]:
    """Places of the starts after which the learner adopts before its next update."""
    adopting: set[int] = set()
    started: dict[int, int] = {}
    for at, event in enumerate(events):
        if event.kind == "start":
            started[event.learner] = at
        elif event.kind == "adopt" and event.learner in started:
            adopting.add(started.pop(event.learner))
        elif event.kind in ("update", "mix"):
            started.pop(event.learner, None)
    return adopting
