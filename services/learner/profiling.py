"""TensorBoard profiles of a running learner: POST /profile?seconds=N, or SIGUSR1."""

import logging
import shutil
import signal
import threading
from pathlib import Path

from seedbed import backends
from seedbed.runtime.http import Conflict

log = logging.getLogger(__name__)

# Length of a profile that a signal starts, in seconds.
SIGNAL_S = 5.0
# Profiles that are kept, the newest: one has tens of megabytes.
KEPT = 5


class Profiler:
    """Profiler of all threads of this process, while they run.

    Args:
        directory: TensorBoard finds the newest profiles below it, in `plugins/profile/TIME`.
        stopping: ends a profile early.
    """

    def __init__(self, directory: Path, stopping: threading.Event) -> None:
        self._directory = directory
        self._stopping = stopping
        self._running = threading.Lock()

    def profile(self, seconds: float) -> str:
        """Profile for `seconds`, and return the directory of the profiles.

        Raises:
            Conflict: no backend has started yet, or another profile is running.
        """
        try:
            backend = backends.current()
        except RuntimeError:
            raise Conflict("nothing computes yet: the first actor starts it") from None
        if not self._running.acquire(blocking=False):
            raise Conflict("a profile is running: try again when it is done")
        try:
            log.info("profiling for %g s", seconds)
            with backend.profile(str(self._directory)):
                self._stopping.wait(seconds)
            self._prune()
        finally:
            self._running.release()
        log.info("profile written: tensorboard --logdir %s", self._directory)
        return str(self._directory)

    def _prune(self) -> None:
        written = self._directory.glob("plugins/profile/*")
        for old in sorted(written, key=lambda path: path.stat().st_mtime_ns)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def profile_on_signal(self) -> None:
        """Let SIGUSR1 profile `SIGNAL_S` seconds in a thread of its own. Main thread only."""

        def start(*_: object) -> None:
            threading.Thread(target=self._guarded, name="profile", daemon=True).start()

        signal.signal(signal.SIGUSR1, start)

    def _guarded(self) -> None:
        """Profile. Errors are logged, and training goes on."""
        try:
            self.profile(SIGNAL_S)
        except Exception as error:
            log.error("no profile: %s: %s", type(error).__name__, error)
