"""What hostile peers do with the credential of their role: one lie after the other, by chance."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc

from tests.storm.problems import Problems

THREADS = 3  # lies at a time


class Lie(NamedTuple):
    """Messages of right form that state something false, or take what is not given.

    Attributes:
        name: for the report.
        tell: tells it once; returns what was answered wrongly, or an empty string.
        spoils: whether the policy of the honest may be worse for it, as docs/security.md admits.
    """

    name: str
    tell: Callable[[random.Random], str]
    spoils: bool = False


class Liars:
    """Tells lies in threads, until the end of the block.

    Args:
        lies: of which one after the other is drawn.
        seed: of the choices.
        problems: takes what was answered wrongly.

    Attributes:
        told: how often each lie was told.
    """

    def __init__(self, lies: Sequence[Lie], seed: int, problems: Problems) -> None:
        self._lies, self._problems = lies, problems
        self.told: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}/{number}"),))
            for number in range(THREADS)
        ]

    def __enter__(self) -> Liars:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, chance: random.Random) -> None:
        while not self._stop.wait(0.1):
            lie = chance.choice(self._lies)
            try:
                if wrong := lie.tell(chance):
                    self._problems.append(f"{lie.name}: {wrong}")
            except (OSError, AssertionError):  # a raw connection was refused, or cut
                time.sleep(0.5)
            except Exception as error:
                self._problems.append(f"{lie.name}: the lie itself failed: {error!r}")
            self.told[lie.name] += 1


def refused(code: grpc.StatusCode, *expected: grpc.StatusCode) -> str:
    """Return what is wrong with a status that must be one of some; an empty string if nothing."""
    if code in expected:
        return ""
    return f"{code.name}, where {' or '.join(one.name for one in expected)} is right"
