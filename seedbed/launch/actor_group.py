"""Actor processes of one container, whose image has no library of the learner."""

import logging
import os
import subprocess
from collections.abc import Sequence

from seedbed.launch.supervisor import start_seedbed
from seedbed.runtime.signals import Terminated

log = logging.getLogger(__name__)


def run_actors(arguments: Sequence[str], indices: Sequence[int]) -> int:
    """Run an actor process for each index until the first one ends; end all, return its exit code.

    After SIGTERM return the exit code of the first one that fails to end well, or 0.

    Args:
        arguments: of `seedbed actor`, without `--index`.
        indices: index of each process.
    """
    processes: list[subprocess.Popen[bytes]] = []
    code: int | None = None
    try:
        processes.extend(
            start_seedbed("actor", *arguments, f"--index={index}") for index in indices
        )
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        code = next(code for process in processes if (code := process.poll()) is not None)
    except Terminated:
        log.info("SIGTERM: %d actor processes drain", len(processes))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    if code is None:
        code = next((process.returncode for process in processes if process.returncode), 0)
    return code if code >= 0 else 128 - code
