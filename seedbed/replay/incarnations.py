"""Incarnations of a shard, and which keys of earlier ones still name the same sequences.

An incarnation continues the keys where the files of the previous one end. After `kill -9` the
files end where the previous incarnation ended. After a crash of the machine the files may end
earlier: keys that were assigned, and have reached a learner, are assigned to other sequences. A
key of an earlier incarnation is therefore valid only below the first key of every later one.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple


class Incarnation(NamedTuple):
    """One start of a shard."""

    number: int  # drawn at random at the start; below 2^63
    first_key: int  # the first key that this incarnation assigned


def new_incarnation(first_key: int) -> Incarnation:
    """Return the incarnation that begins now.

    Args:
        first_key: First key that it assigns.
    """
    return Incarnation(secrets.randbits(63), first_key)


def key_limit(incarnations: Sequence[Incarnation], number: int) -> int | None:
    """Return the bound below which keys of an incarnation are valid.

    Args:
        incarnations: Incarnations of a shard, the oldest first.
        number: Number of the incarnation that assigned the keys.

    Returns:
        None: all keys are valid. 0: the incarnation is not known.
    """
    for place, one in enumerate(incarnations):
        if one.number == number:
            later = incarnations[place + 1 :]
            return min((after.first_key for after in later), default=None)
    return 0
