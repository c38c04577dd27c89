"""Common order of all learners' events, and the mixing matrix of each event.

The state at a moment is the parameters of n learners and, as usual for delays (Hadjicostis and
Charalambous 2014), one more row for each message that is still to be mixed. The matrix of an event
is the identity except for one or two rows, so only those are stored.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.events import Event
from seedbed.runtime.exit_codes import RunDirectoryError


@dataclass(slots=True)
class MixingStep:
    """An event as operations on the rows of the state; row i < n is learner i.

    Attributes:
        event: The event.
        own: Weight of the learner's own row in a mix; 0 in an adoption.
        sources: Rows that are mixed in, with their weights.
        copy_to: Row that becomes a copy of the learner's, as its message or its snapshot. None if
            the message is never mixed.
        freed: Rows that are not needed after this step.
        lost: Whether the learner went on from unknown parameters: at a start without adoption, or
            with a message that is in no log.
    """

    event: Event
    own: float = 1.0
    sources: list[tuple[int, float]] = field(default_factory=list)
    copy_to: int | None = None
    freed: list[int] = field(default_factory=list)
    lost: bool = False

    def apply(self, state: NDArray[np.float64]) -> None:
        """Multiply the state by the matrix of this step, in place.

        Args:
            state: The state [rows, ...].
        """
        i = self.event.learner
        if self.sources:
            state[i] *= self.own
            for row, weight in self.sources:
                state[i] += weight * state[row]
        if self.copy_to is not None:
            state[self.copy_to] = state[i]


def with_snapshots(events: Sequence[Event], numbers: Sequence[int], every_s: float) -> list[Event]:
    """Insert the moments at which a learner's snapshots were taken into its events.

    Args:
        events: Events of one learner, in the order of its file; not empty.
        numbers: Numbers of the snapshots, rising. Number C shows the parameters after the last
            event before the time C · every_s.
        every_s: Seconds between two snapshots.
    """
    merged: list[Event] = []
    learner, after = events[0].learner, 0
    for event in events:
        while after < len(numbers) and numbers[after] * every_s <= event.time:
            merged.append(Event(learner, numbers[after] * every_s, "snapshot", numbers[after]))
            after += 1
        merged.append(event)
    return merged + [Event(learner, n * every_s, "snapshot", n) for n in numbers[after:]]


def doubtful_snapshots(events: Sequence[Event]) -> set[int]:
    """Return the numbers of snapshots between a learner's `start` and its `adopt`.

    They show parameters that the process loaded, never used, and logged in no other event.
    """
    until_adoption = [events[at] for at in _until_adoption(events)]
    return {event.iteration for event in until_adoption if event.kind == "snapshot"}


def _until_adoption(events: Sequence[Event]) -> set[int]:
    """Return the places of events from a learner's `start` to its `adopt`, without the latter.

    A start that the learner's own update or mix follows first has no adoption.
    """
    places: set[int] = set()
    since: dict[int, set[int]] = {}  # learner -> places from its newest start on
    for at, event in enumerate(events):
        if event.kind == "start":
            since[event.learner] = set()
        elif event.kind in ("adopt", "update", "mix"):
            until = since.pop(event.learner, set())
            places |= until if event.kind == "adopt" else set()
        if event.learner in since:
            since[event.learner].add(at)
    return places


def causal_order(logs: Sequence[Sequence[Event]]) -> list[Event]:
    """Merge all logs so that no message is mixed before the update that made it.

    Each learner's events keep their order. The rest is ordered by time, ties by rank. The times
    alone would put effects before their causes, because the clocks of two machines differ.

    Args:
        logs: Events of learner 0, 1, ...

    Raises:
        SeedbedError: RUN_DIRECTORY; messages are mixed before they can have been made.
    """
    updates = (event for log in logs for event in log if event.kind == "update")
    made = {(event.learner, event.iteration) for event in updates}
    logs = [[_or_lost(event, made) for event in log] for log in logs]
    ordered: list[Event] = []
    newest = [-1] * len(logs)  # version of each learner's last update so far
    position = [0] * len(logs)
    total = sum(map(len, logs))
    while len(ordered) < total:
        heads = [log[at] for log, at in zip(logs, position, strict=True) if at < len(log)]
        ready = [
            event
            for event in heads
            if all(message.version <= newest[message.sender] for message in event.messages)
        ]
        if not ready:
            event, message = heads[0], heads[0].messages[0]
            raise RunDirectoryError(
                f"learner {event.learner} mixed at iteration {event.iteration} a message of "
                f"learner {message.sender}, version {message.version}, which by the logs came "
                "later: are they all of one run?"
            )
        first = min(ready, key=lambda event: event.time)
        position[first.learner] += 1
        if first.kind == "update":
            newest[first.learner] = first.iteration
        ordered.append(first)
    return ordered


def _or_lost(event: Event, made: Collection[tuple[int, int]]) -> Event:
    """Replace an event whose message is in no log.

    A peer that lost its run directory has begun a new log, with versions that it had not used
    before.
    """
    if all((message.sender, message.version) in made for message in event.messages):
        return event
    return Event(event.learner, event.time, "lost", event.iteration)


def mixing_steps(events: Sequence[Event], learners: int) -> tuple[list[MixingStep], int]:
    """Convert events to steps.

    A snapshot is a row too, from the moment it was taken until the last learner's one of its
    number. So the snapshots of a number may be taken at different moments of the common order.

    Args:
        events: Events of all learners, in the order of `causal_order`.
        learners: Number of learners n.

    Returns:
        The steps, and the number of rows that the state needs.
    """
    uses = Counter(
        (message.sender, message.version) for event in events for message in event.messages
    )
    # Starts after which the learner adopts are no loss.
    adopting = _until_adoption(events)
    rows: dict[tuple[int, int], int] = {}
    snapshots: dict[int, list[int]] = {}
    free: list[int] = []
    fresh = itertools.count(learners)
    started: set[int] = set()
    steps: list[MixingStep] = []

    def new_row() -> int:
        return free.pop() if free else next(fresh)

    for at, event in enumerate(events):
        step = MixingStep(event, lost=event.kind == "lost")
        key = (event.learner, event.iteration)
        if event.kind == "start":
            step.lost = event.learner in started and at not in adopting
            started.add(event.learner)
        elif event.kind == "update" and uses[key]:
            step.copy_to = rows[key] = new_row()
        elif event.kind == "snapshot":
            step.copy_to = new_row()
            taken = snapshots.setdefault(event.iteration, [])
            taken.append(step.copy_to)
            if len(taken) == learners:
                step.freed = snapshots.pop(event.iteration)
        for message in event.messages:
            key = (message.sender, message.version)
            step.sources.append((rows[key], message.weight))
            uses[key] -= 1
            if not uses[key]:
                step.freed.append(rows.pop(key))
        if step.sources:
            total = sum(weight for _, weight in step.sources)
            step.own = 0.0 if event.kind == "adopt" else max(0.0, 1.0 - total)
        free += step.freed
        steps.append(step)
    return steps, next(fresh)
