"""Mutated messages to all services by turns, beside runs that learn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from tests.storm.background import Background
from tests.storm.fuzz import Door, Tally, fuzz
from tests.storm.problems import Problems

MESSAGES_A_TURN = 300
LEARNERS_SHARE = 4  # turns of the learner for each one of another method


class Fuzzer(Background):
    """Sends mutated messages in a thread.

    Attributes:
        tallies: results by method.
        mismatches: streams that ended otherwise than their judge says.
    """

    def __init__(self, seed: int, doors: Sequence[Door], rate: float) -> None:
        super().__init__()
        self._seed, self._rate = seed, rate
        self._doors = [*doors]
        self._learner: list[Door] = []
        self.tallies: dict[str, Tally] = {}
        self.mismatches = Problems()
        self._turn = threading.Lock()
        self.failure: BaseException | None = None

    def attack(self, learner: Door | None) -> None:
        """Attack the learner of a run too; None: no learner any more."""
        with self._turn:  # no stream is open to a learner that ends
            self._learner = [] if learner is None else [learner] * LEARNERS_SHARE

    def _run(self) -> None:
        try:
            asyncio.run(self._turns())
        except BaseException as error:
            self.failure = error

    async def _turns(self) -> None:
        turn, began, sent = 0, time.monotonic(), 0
        while not self._stop.is_set():
            with self._turn:
                doors = [*self._doors, *self._learner]
                door, until = doors[turn % len(doors)], time.monotonic() + 10.0
                tally = await fuzz(door, self._seed * 1_000_000 + turn, MESSAGES_A_TURN, until)
            name = door.method.path.removeprefix("/seedbed.v1.")
            self.tallies.setdefault(name, Tally()).add(tally)
            self.mismatches.say(tally.mismatches)
            turn, sent = turn + 1, sent + tally.messages
            ahead_s = sent / self._rate - (time.monotonic() - began)
            await asyncio.sleep(max(0.02, min(ahead_s, 1.0)))
