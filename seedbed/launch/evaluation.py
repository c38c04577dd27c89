"""An evaluation that a run starts: `seedbed evaluate` in a process of its own."""

import json
import logging
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from seedbed.config.run import Evaluation
from seedbed.launch.supervisor import start_seedbed
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.log_files import rotate_log
from seedbed.runtime.text import counted

log = logging.getLogger(__name__)

_TAIL_BYTES = 4096


def evaluation_arguments(path: Path, checkpoint: str, settings: Evaluation) -> list[str]:
    """Return the arguments of `seedbed` that evaluate as the settings say.

    Args:
        path: a run directory.
        checkpoint: as for `--checkpoint`.
        settings: number of episodes, and the policy.
    """
    policy = () if settings.policy == "agent" else ("--policy", settings.policy)
    # The run belongs to the user that started this process.
    options = ["--episodes", str(settings.episodes), *policy, "--trust", "--progress"]
    return ["evaluate", str(path), "--checkpoint", checkpoint, *options]


class EvaluationProcess:
    """A process that evaluates a checkpoint; logs/evaluation.log has its stderr.

    Args:
        run: the run directory.
        checkpoint: as for `seedbed evaluate --checkpoint`.
        settings: number of episodes, and the policy.
        more: more arguments.

    Attributes:
        checkpoint: the same.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(
        self, run: RunDirectory, checkpoint: str, settings: Evaluation, *more: str
    ) -> None:
        self.checkpoint = checkpoint
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed by `result` or `kill`
        try:
            run.logs.mkdir(parents=True, exist_ok=True)
            self._log = run.logs / "evaluation.log"
            rotate_log(self._log)
            arguments = evaluation_arguments(run.path, checkpoint, settings)
            with self._log.open("ab") as errors:
                self._process = start_seedbed(*arguments, *more, stdout=self._output, stderr=errors)
        except BaseException:
            self._output.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of the process, for some time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def be_nicer(self, by: int) -> None:
        """Take less of the CPU than this process does, by so many steps of niceness."""
        own = os.getpriority(os.PRIO_PROCESS, 0)
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, min(19, own + by))

    def progress(self) -> str:
        """Return how many episodes have ended, in words; "" before the first report."""
        if self._output.closed:
            return ""
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        lines = tail.decode(errors="replace").split("\n")[:-1]  # the last one may be half a line
        with suppress(ValueError, KeyError, IndexError, TypeError):
            newest = json.loads(lines[-1])["progress"]
            if waiting := newest.get("waiting"):
                return str(waiting)
            mean = newest["mean"]
            words = f"{newest['ended']} of {counted(newest['episodes'], 'episode')}"
            return words if mean is None else f"{words}, mean {mean:.4g} so far"
        return ""

    def result(self) -> dict[str, Any] | None:
        """Return the result of the process, which has ended; None where it failed, logged."""
        self._output.seek(0)
        lines = self._output.read().splitlines()
        self._output.close()
        if code := self._process.returncode:
            text = "the evaluation of %s failed with exit code %d: see %s"
            log.error(text, self.checkpoint, code, self._log)
            return None
        return dict(json.loads(lines[-1]))

    def kill(self) -> None:
        """End the process now; it has no result."""
        self._process.kill()
        self._process.wait()
        self._output.close()
