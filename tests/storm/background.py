"""A thread beside the block of a `with`."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

_Self = TypeVar("_Self", bound="Background")


class Background:
    """Runs `_run` in a thread, from the begin of the block until `_stop` is set at its end."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self: _Self) -> _Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError
