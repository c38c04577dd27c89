"""Statuses of the peers, requested from them before what they have stated ends a run."""

import time
from collections.abc import Callable
from concurrent.futures import Future

from seedbed.v1.gossip_pb2 import Member

# Pause after answers that have confirmed nothing.
_PAUSE_S = 5.0


class SecondReading:
    """Statuses of all peers, from their own addresses. One thread.

    A heartbeat comes on a stream that a process opens, which states whose it is. A status that is
    requested comes from the address that the experiment names.

    Args:
        request: requests the statuses: by rank, of the peers that answer.
    """

    def __init__(self, request: Callable[[], Future[dict[int, Member]]]) -> None:
        self._request = request
        self._under_way: Future[dict[int, Member]] | None = None
        self._next_s = 0.0

    def answers(self) -> dict[int, Member] | None:
        """Return the answers once, by rank; None until they are there. Never waits.

        The first call requests them, and so does a later one, a pause after answers.
        """
        if self._under_way is None:
            if time.monotonic() >= self._next_s:
                self._under_way = self._request()
            return None
        if not self._under_way.done():
            return None
        found, self._under_way = self._under_way.result(), None
        self._next_s = time.monotonic() + _PAUSE_S
        return found
