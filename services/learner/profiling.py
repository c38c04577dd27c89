"""TensorBoard profiles of a running learner: POST /profile?seconds=N, or SIGUSR1."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from types import FrameType

from seedbed import backends
from seedbed.runtime.http import Conflict

log = logging.getLogger(__name__)

# Length of a profile that a signal starts, in seconds.
SIGNAL_S = 5.0


class NothingComputes(Conflict):
    """No backend has started, so there is nothing to profile yet."""


class Profiler:
    """Profiler of all threads of this process, while they run.

    Args:
        directory: TensorBoard finds the profiles below it, in `plugins/profile/TIME`.
        stopping: ends a profile early.
    """

    def __init__(self, directory: Path, stopping: threading.Event) -> None:
        self._directory = directory
        self._stopping = stopping
        self._running = threading.Lock()

    def profile(self, seconds: float) -> str:
        """Profile for `seconds`, and return the directory of the profiles.

        Raises:
            NothingComputes: no backend has started yet.
            RuntimeError: another profile is running.
        """
        try:
            backend = backends.current()
        except RuntimeError:
            raise NothingComputes("nothing computes yet: the first actor starts it") from None
        if not self._running.acquire(blocking=False):
            raise RuntimeError("a profile is running: try again when it is done")
        try:
            log.info("profiling for %g s", seconds)
            with backend.profile(str(self._directory)):
                self._stopping.wait(seconds)
        finally:
            self._running.release()
        log.info("profile written: tensorboard --logdir %s", self._directory)
        return str(self._directory)

    def start(self, seconds: float) -> None:
        """Profile in a thread of its own. Errors are logged, and training goes on."""
        threading.Thread(target=self._guarded, args=(seconds,), name="profile", daemon=True).start()

    def _guarded(self, seconds: float) -> None:
        try:
            self.profile(seconds)
        except Exception as error:
            log.error("no profile: %s: %s", type(error).__name__, error)


def profile_on_signal(profiler: Profiler) -> None:
    """Let SIGUSR1 start a profile of `SIGNAL_S` seconds. Main thread only."""

    def handler(_: int, __: FrameType | None) -> None:
        profiler.start(SIGNAL_S)

    signal.signal(signal.SIGUSR1, handler)
