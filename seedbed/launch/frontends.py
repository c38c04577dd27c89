"""Front ends of a learner: processes that own the sockets of its actors."""

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from typing_extensions import override

from seedbed.launch.supervisor import Supervisor, start_seedbed
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.threads import Threads

_POLL_S = 0.2


class LocalFrontends(Supervisor):
    """Keeps the front ends running, restarted from a thread of its own.

    Args:
        addresses: where each one listens.
        socket: path of the learner's socket for front ends.
        credentials: credential options of the learner's command line.
        logs: folder of their logs.
        threads: the learner's threads, which fail when front ends keep failing.
    """

    name = "frontend"
    window_s = 60.0
    too_many = ExitCode.FRONTENDS_FAILED
    fatal = (ExitCode.CONFIG, ExitCode.USAGE, ExitCode.BIND)
    stop_timeout_s = 8.0

    def __init__(
        self,
        addresses: Sequence[str],
        socket: str,
        credentials: Sequence[str],
        logs: Path,
        threads: Threads,
    ) -> None:
        super().__init__(len(addresses), logs)
        self._addresses, self._socket, self._credentials = addresses, socket, credentials
        self._threads = threads
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="frontends", daemon=True)

    @override
    def start(self) -> None:
        self._watcher.start()

    @override
    def stop(self) -> None:
        self._stopping.set()
        self._watcher.join()

    @override
    def start_process(self, index: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        return start_seedbed(
            *("frontend", "--learner", self._socket, "--number", str(index)),
            *("--listen", self._addresses[index], *self._credentials),
            stdout=errors,
            stderr=errors,
        )

    def _watch(self) -> None:
        try:
            # In this thread, because the kernel ends with it the processes that it has started.
            super().start()
            while not (self._stopping.wait(_POLL_S) or self._threads.stopping.is_set()):
                self.poll()
        except BaseException as error:
            self._threads.fail("frontends", error)
        self._stopping.wait()  # until the learner has said goodbye through them
        super().stop()
