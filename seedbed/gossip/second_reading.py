"""Statuses of the peers, requested from them before what they have stated ends a run."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from seedbed.gossip.membership import Membership
from seedbed.v1.gossip_pb2 import Member

log = logging.getLogger(__name__)

# Pause after answers that have confirmed nothing.
_PAUSE_S = 5.0


class SecondReading:
    """Reads the statuses of all peers at their own addresses. Thread-safe.

    A heartbeat comes on a stream that a peer opens, and states whose it is. A status that is
    requested comes from the address that the experiment names.

    Args:
        membership: receives the answers, too.
        requests: by rank, what requests the status of a peer; None is no answer.
    """

    def __init__(
        self, membership: Membership, requests: Mapping[int, Callable[[], Member | None]]
    ) -> None:
        self._membership, self._requests = membership, requests
        self._lock = threading.Lock()
        self._answers: dict[int, Member] | None = None
        self._thread: threading.Thread | None = None
        self._next_s = 0.0

    def answers(self) -> dict[int, Member] | None:
        """Return the answers once, by rank, of the peers that answer; None until they are there.

        The first call, and each one that follows answers, requests them. Never waits.
        """
        with self._lock:
            if self._thread is not None and not self._thread.is_alive():
                self._thread = None
                found, self._answers = self._answers, None
                self._next_s = time.monotonic() + _PAUSE_S
                if found is not None:
                    return found
            if self._thread is None and time.monotonic() >= self._next_s:
                self._thread = threading.Thread(
                    target=self._read, name="second-reading", daemon=True
                )
                self._thread.start()
        return None

    def _read(self) -> None:
        ranks = list(self._requests)
        with ThreadPoolExecutor(len(ranks), "second-reading") as pool:
            statuses = pool.map(lambda rank: self._requests[rank](), ranks)
            found = {
                rank: status
                for rank, status in zip(ranks, statuses, strict=True)
                if status is not None
            }
        for rank, status in found.items():
            self._membership.update(rank, status, is_requested=True)
        with self._lock:
            self._answers = found
