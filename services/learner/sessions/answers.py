"""Way of computed actions to the streams and to the event loop."""

import asyncio
import threading
from collections import deque

from seedbed.services.learner.sessions.batcher import Request


class Answers:
    """Sends computed actions, and tells the event loop of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        # Batches that are computed, and of which the event loop does not know yet.
        self._computed: deque[list[Request]] = deque()

    def begin(self) -> None:
        """Note the event loop that runs."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()

    def send(self, batch: list[Request]) -> None:
        """Send the actions of a batch, with one wake-up of the event loop at most. Any thread.

        Streams that can post are written to from here. Their next messages wake the event loop,
        which learns of the batch before it reads them. The event loop itself needs no wake-up.
        """
        # Before anything is sent, because the next message may come at once.
        self._computed.append(batch)
        is_woken = True  # by the messages that follow
        for request in batch:
            if request.post is None or request.action is None:
                is_woken = False
            else:
                request.post(request.action)
        if threading.get_ident() == self._loop_thread:
            self.note()
        elif not is_woken and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.note)

    def note(self) -> None:
        """Let the coroutines of computed batches go on. Event loop only."""
        while self._computed:
            for request in self._computed.popleft():
                request.done = True
                request.on_done()
