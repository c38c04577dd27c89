"""Loop of a client that connects again, with growing pauses, whenever its connection ends."""

import asyncio
import contextlib
import random
import time

import grpc
import grpc.aio

from seedbed.rpc.streams import STATUS_LENGTH
from seedbed.runtime.text import printable

# Statuses with which a server rejects a client that would be rejected again.
FATAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)


def details_of(error: grpc.RpcError) -> str:
    """Return the message of a call's status, which is a text of the peer."""
    return printable(error.details() or "", STATUS_LENGTH)


def describe(error: grpc.RpcError) -> str:
    """Return the status of a call in words."""
    return f"{error.code().name}: {details_of(error)}"


class Attempts:
    """Attempts to connect, with pauses between them, as an asynchronous iterator.

    ::

        async for _ in Attempts():
            try:
                await self._connect()                # until the connection ends
            except grpc.aio.AioRpcError as error:
                self.cause = describe(error)
                if error.code() in FATAL:
                    return
            except ConnectionError as error:
                self.cause = str(error)

    Args:
        first_s: the first pause. Each further pause is twice as long as the one before.
        longest_s: the longest pause.
        jitter: shorten each pause at random, by up to a half, so that clients of one server do
            not return together.
        stable_s: an attempt that lasted longer resets the pauses; `longest_s` if not given.
        stop: ends the pause and the iteration when it is set.

    Attributes:
        pause_s: the next pause, before jitter.
    """

    def __init__(
        self,
        first_s: float = 0.2,
        longest_s: float = 5.0,
        jitter: bool = True,
        stable_s: float | None = None,
        stop: asyncio.Event | None = None,
    ) -> None:
        self._first_s, self._longest_s, self._jitter = first_s, longest_s, jitter
        self._stable_s = longest_s if stable_s is None else stable_s
        self._stop = stop or asyncio.Event()
        self._started: float | None = None  # of the present attempt
        self.pause_s = first_s

    def reset(self) -> None:
        """Make the next pause the first one again."""
        self.pause_s = self._first_s

    def skip_pause(self) -> None:
        """Make the next attempt at once."""
        self._started = None

    def __aiter__(self) -> "Attempts":
        return self

    async def __anext__(self) -> None:
        if self._started is not None:
            if time.monotonic() - self._started > self._stable_s:
                self.reset()
            pause_s = self.pause_s * (random.uniform(0.5, 1.0) if self._jitter else 1.0)
            self.pause_s = min(2 * self.pause_s, self._longest_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
        if self._stop.is_set():
            raise StopAsyncIteration
        self._started = time.monotonic()
