"""Calls of a service that may hang, in a thread of their own, so that none delays training."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from seedbed.runtime.text import counted
from seedbed.runtime.threads import leave_at_once

_T = TypeVar("_T")

# Items that wait for a service which is slow or down.
_MOST = 1000
# A call that takes longer is told.
_SLOW_S = 30.0
# The end of a run waits so long for what is still to be sent.
_END_S = 6.0


class Aside(Generic[_T]):
    """Hands items to a service, in their order. One that fails is tried again with the next.

    Args:
        name: Of the service.
        call: Takes an item; it may wait for the service.
        end: Called last, if any item was taken.
    """

    def __init__(self, name: str, call: Callable[[_T], object], end: Callable[[], object]) -> None:
        self._call, self._end = call, end
        self._items: deque[_T] = deque()
        self._error: Exception | None = None
        self._since: float | None = None  # when the call that is being made began
        self._lost = 0
        self._wake = threading.Event()
        self._closing = False
        # Python waits for no such thread at its end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: _T) -> None:
        """Let an item be handed on. Never waits.

        Raises:
            TimeoutError: The service has not answered for long.
            Exception: What the newest call has raised.
        """
        if len(self._items) < _MOST:
            self._items.append(item)
        else:
            self._lost += 1
        self._wake.set()
        since, error = self._since, self._error
        if since is not None and (waited_s := time.monotonic() - since) > _SLOW_S:
            raise TimeoutError(f"no answer for {waited_s:.0f} s{self._losses()}")
        if error is not None:
            raise error.with_traceback(None)  # it would grow with each

    def close(self) -> None:
        """End the service after what waits, within `_END_S`.

        Raises:
            TimeoutError: It has not ended in time; the process ends without it.
            Exception: What the last call has raised.
        """
        self._closing = True
        self._wake.set()
        self._thread.join(_END_S)
        if self._thread.is_alive():
            leave_at_once()
            waiting = counted(len(self._items), "interval")
            raise TimeoutError(f"no end within {_END_S:g} s, {waiting} not sent{self._losses()}")
        if self._error is not None:
            raise self._error

    def _losses(self) -> str:
        return f", {counted(self._lost, 'interval')} left out" if self._lost else ""

    def _run(self) -> None:
        taken = False
        while not self._closing or self._items:
            self._wake.wait()
            self._wake.clear()
            while self._items:
                if not self._made(lambda: self._call(self._items[0])):
                    if self._closing:
                        self._items.clear()
                    break
                taken = True
                self._items.popleft()
        error = self._error  # of items that were not taken
        if taken and not self._made(self._end):
            return
        self._error = error

    def _made(self, call: Callable[[], object]) -> bool:
        self._since, self._error = time.monotonic(), None
        try:
            call()
        except Exception as error:
            self._error = error
        except BaseException as error:  # the client of a service may want to end the process
            self._error = RuntimeError(repr(error))
        self._since = None
        return self._error is None
