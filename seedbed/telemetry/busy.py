"""The time of a thread: working, blocked on a neighbour, or idle."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

THREADS = ("inference", "prefetch", "training")


class Totals(NamedTuple):
    """Seconds since the start of the clock; in the rest of the time the thread was idle."""

    busy_s: float
    blocked_s: float


class _State(NamedTuple):
    """Kind is "idle", "busy" or "blocked"; reason is why the thread is blocked or idle, or ""."""

    kind: str
    reason: str
    since: float
    totals: Totals


class BusyClock:
    """The clock of one thread.

    `with clock:` is work. `with clock.blocked("unroll queue full"):`, inside or outside of work, is
    time in which a neighbour owes progress, which does not count as work. `waiting_for` is what an
    idle thread waits for. One thread at a time may write: the thread itself, or the one that does
    its work meanwhile. Any thread may read without a lock, because the whole state is one tuple,
    replaced at once.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._state = _State("idle", "", now(), Totals(0.0, 0.0))
        self._outer: list[tuple[str, str]] = []

    def __enter__(self) -> "BusyClock":
        self._push("busy", "")
        return self

    def __exit__(self, *error: object) -> None:
        self._switch(*self._outer.pop())

    @contextmanager
    def blocked(self, reason: str) -> Iterator[None]:
        """Return a context in which the thread can do nothing, with the reason in words."""
        self._push("blocked", reason)
        try:
            yield
        finally:
            self._switch(*self._outer.pop())

    @property
    def waiting_for(self) -> str:
        """Present reason to wait, in words; "" while the thread works or gave no reason."""
        return self._state.reason

    @waiting_for.setter
    def waiting_for(self, reason: str) -> None:
        self._state = self._state._replace(reason=reason)

    @property
    def state(self) -> tuple[str, float]:
        """`idle`, `busy` or `blocked`, and for how many seconds."""
        state = self._state
        return state.kind, self._now() - state.since

    def totals(self) -> Totals:
        """Return the seconds of work and of blocking so far, the present stretch included."""
        return _advance(self._state, self._now())

    def _push(self, kind: str, reason: str) -> None:
        self._outer.append(self._state[:2])
        self._switch(kind, reason)

    def _switch(self, kind: str, reason: str) -> None:
        now = self._now()
        self._state = _State(kind, reason, now, _advance(self._state, now))


def _advance(state: _State, now: float) -> Totals:
    stretch = max(0.0, now - state.since)
    busy_s, blocked_s = state.totals
    if state.kind == "busy":
        return Totals(busy_s + stretch, blocked_s)
    if state.kind == "blocked":
        return Totals(busy_s, blocked_s + stretch)
    return state.totals
