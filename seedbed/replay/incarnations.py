"""Which keys of a shard's earlier lives still name the same sequences."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple


class Incarnation(NamedTuple):
    """One start of a shard."""

    incarnation: int  # drawn anew; below 2^63
    first_key: int  # the first one that it gave


class IncarnationHistory:
    """The lives of a shard.

    A life goes on counting keys where the files of the one before end. After `kill -9` that is
    where it really ended. After a crash of the machine it may be earlier: keys that were given, and
    have reached a learner, are given to other sequences. A key of an earlier life therefore counts
    only where it is below the first key of every life since.
    """

    def __init__(self, earlier: Iterable[Incarnation], first_key: int) -> None:
        self.lives = [*earlier, Incarnation(secrets.randbits(63), first_key)]

    @property
    def now(self) -> int:
        """The present incarnation."""
        return self.lives[-1].incarnation

    def limit(self, incarnation: int) -> int | None:
        """Keys of that incarnation below this are good; None: all; 0 where it is not known."""
        for place, life in enumerate(self.lives):
            if life.incarnation == incarnation:
                return min((later.first_key for later in self.lives[place + 1 :]), default=None)
        return 0
