"""What an observer's credential may take of a learner: its status, which is not read."""

from __future__ import annotations

import random
import time
from typing import Any

from tests.storm.calls import HOLD_S, Entry
from tests.storm.lies import Lie

GET_STATUS = "/seedbed.v1.Inference/GetStatus"


class StatusLies:
    """Requests of a status.

    Args:
        entry: the learner.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def lies(self) -> list[Lie]:
        return [
            Lie("statuses that nobody reads", self._unread),
            Lie("half a request", self._half),
        ]

    def _unread(self, chance: random.Random) -> str:
        with self._entry.channel() as channel:
            ask: Any = channel.unary_unary(GET_STATUS)
            metadata = self._entry.credentials.metadata()
            calls = [ask.future(b"", metadata=metadata, timeout=20) for _ in range(50)]
            time.sleep(chance.uniform(0, HOLD_S))
            for call in calls:
                call.cancel()
        return ""

    def _half(self, chance: random.Random) -> str:
        self._entry.half_messages(GET_STATUS, chance.choice((1 << 20, 60 << 20)), 3)
        return ""
