"""Incarnations of a shard, and which keys of earlier ones still name the same sequences."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple


class Incarnation(NamedTuple):
    """One start of a shard."""

    incarnation: int  # drawn at random at the start; below 2^63
    first_key: int  # the first key that this incarnation assigned


class IncarnationHistory:
    """Incarnations of a shard, the present one last.

    An incarnation continues the keys where the files of the previous one end. After `kill -9` the
    files end where the previous incarnation ended. After a crash of the machine the files may end
    earlier: keys that were assigned, and have reached a learner, are assigned to other sequences.
    A key of an earlier incarnation is therefore valid only below the first key of every later one.

    Args:
        earlier: Incarnations before this one, the oldest first.
        first_key: First key that this incarnation assigns.
    """

    def __init__(self, earlier: Iterable[Incarnation], first_key: int) -> None:
        self.incarnations = [*earlier, Incarnation(secrets.randbits(63), first_key)]

    @property
    def now(self) -> int:
        """The present incarnation."""
        return self.incarnations[-1].incarnation

    def limit(self, incarnation: int) -> int | None:
        """Return the bound below which keys of an incarnation are valid.

        Args:
            incarnation: Number of the incarnation that assigned the keys.

        Returns:
            None: all keys are valid. 0: the incarnation is not known.
        """
        for place, one in enumerate(self.incarnations):
            if one.incarnation == incarnation:
                later = self.incarnations[place + 1 :]
                return min((after.first_key for after in later), default=None)
        return 0
