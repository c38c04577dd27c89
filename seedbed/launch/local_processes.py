"""Training processes of one run on this machine, and the loop that watches them."""

import threading
import time
from abc import abstractmethod
from collections.abc import Collection
from pathlib import Path

from seedbed.launch.supervisor import Supervisor
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.signals import RUN_STOPS, on_stop_signals
from seedbed.telemetry.progress_line import ProgressLine

_POLL_S = 0.2


class LocalProcesses(Supervisor):
    """Processes of `seedbed train` that make one run: its learners, or the hosts of its learner."""

    window_s = 120.0
    fatal: Collection[int] = (
        ExitCode.CONFIG,
        ExitCode.USAGE,
        ExitCode.ENVIRONMENT,
        ExitCode.BACKEND,
        ExitCode.BIND,
        ExitCode.RUN_DIRECTORY,
        ExitCode.CHECKPOINT_READ,
        ExitCode.RESUME_REFUSED,
        ExitCode.DIVERGED,
        ExitCode.CHECKPOINT_WRITE,
    )
    stop_timeout_s = 90.0  # for a last checkpoint

    @abstractmethod
    def line(self) -> list[str]:
        """Return the parts of the progress line, the most important first."""

    def output_file(self, index: int) -> Path:
        """Return the file of stdout: the summary of a process that has ended.

        Args:
            index: number of the process, from 0.
        """
        return self.log_file(index).with_suffix(".json")


def supervise(processes: LocalProcesses, interval_s: float, line: ProgressLine) -> list[str]:
    """Keep processes running until all have completed or a stop signal comes.

    Args:
        processes: not started yet; stopped on return.
        interval_s: seconds between two progress lines.
        line: shows progress; closed on return.

    Returns:
        Names of the stop signals, to which later ones are added.

    Raises:
        SeedbedError: a process failed in a way that a restart cannot mend, or too often.
    """
    stopping, signals = threading.Event(), list[str]()

    def stop(name: str) -> None:
        signals.append(name)
        stopping.set()

    on_stop_signals(stop, notice=RUN_STOPS)
    due = time.monotonic()
    try:
        processes.start()
        while not processes.all_completed and not stopping.wait(_POLL_S):
            processes.poll()
            if time.monotonic() >= due:
                due = time.monotonic() + interval_s
                line.show(processes.line())
    finally:
        line.close()
        processes.stop()
    return signals
