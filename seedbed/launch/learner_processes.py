"""The learner processes of `seedbed train --learners N`: each trains with its own actors."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seedbed.checkpoints.consensus import learner_directory
from seedbed.config import Experiment
from seedbed.launch.child_processes import Restarts, end_all, process_environment
from seedbed.runs.lock import socket_path
from seedbed.runtime.exit_codes import ExitCode

log = logging.getLogger(__name__)

_FAILURES, _WINDOW_S = 5, 120.0
STOP_S = 90.0  # for a last checkpoint
# Starting these again cannot help.
_FATAL = frozenset(
    (
        *(ExitCode.CONFIG, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.BACKEND, ExitCode.BIND),
        *(ExitCode.RUN_DIRECTORY, ExitCode.CHECKPOINT_READ, ExitCode.RESUME_REFUSED),
        *(ExitCode.DIVERGED, ExitCode.CHECKPOINT_WRITE),
    )
)


class LearnerProcesses:
    """Keeps the learners of a run going: one that is killed is started again, and the others
    never stop for it.

    Args:
        path: of the run; learner R's own run directory is `learner-R` in it.
        arguments: more of `seedbed train` for each.
    """

    def __init__(self, experiment: Experiment, path: Path, arguments: Sequence[str]) -> None:
        self._experiment, self._path, self._arguments = experiment, path, arguments
        self.count = experiment.gossip.replicas
        self.directories = [learner_directory(path, rank) for rank in range(self.count)]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._restarts = Restarts(
            "learner", _FAILURES * self.count, _WINDOW_S, ExitCode.LEARNERS_FAILED, _FATAL
        )
        # By all-reduce all have diverged.
        gossip = experiment.gossip.topology == "gossip"
        self._may_diverge = set(range(self.count)) if gossip else set()
        self._ended: set[int] = set()
        self._stopping = False

    def start(self) -> None:
        """Start them all."""
        (self._path / "logs").mkdir(exist_ok=True)
        for rank in range(self.count):
            self._start(rank)

    @property
    def running(self) -> int:
        """How many run."""
        return sum(process.poll() is None for process in self._processes.values())

    @property
    def pids(self) -> dict[int, int]:
        """Of those that run, by rank."""
        return {rank: p.pid for rank, p in self._processes.items() if p.poll() is None}

    def _start(self, rank: int) -> None:
        experiment = self._experiment
        addresses = [
            f"unix:{socket_path(directory).with_name('gossip.sock')}"
            for directory in self.directories
        ]
        settings: dict[str, Any] = {
            "gossip.addresses": json.dumps(addresses),
            # The run's own last one plays the average, or the best, of all learners.
            "evaluation.at_end": "false",
        }
        # What a learner has of its own, wherever it is.
        if directory := experiment.learner.checkpoint.directory:
            settings["learner.checkpoint.directory"] = f"{directory}/learner-{rank}"
        if directory := experiment.learner.replay.directory:
            settings["learner.replay.directory"] = f"{directory}/learner-{rank}"
        if rank:
            settings["evaluation.every_frames"] = 0
        if port := experiment.learner.metrics_port:  # all on one machine
            settings["learner.metrics_port"] = port + rank
        if port := experiment.actor.metrics_port:
            settings["actor.metrics_port"] = port + rank * experiment.actor.processes
        command = [
            sys.executable, "-m", "seedbed.cli.main", "train",
            str(self._path / "experiment.yaml"), "--rank", str(rank),
            "--run-dir", str(self.directories[rank]), "--die-with-parent", str(os.getpid()),
            *self._arguments,
        ]  # fmt: skip
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with self._log(rank).open("ab") as errors, self._output(rank).open("wb") as output:
            self._processes[rank] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=self._share(),
                process_group=0,  # a terminal's signals are for this process to pass on
            )  # fmt: skip

    def _share(self) -> dict[str, str]:
        """An environment in which all learners fit on one accelerator: JAX takes three quarters
        of its memory otherwise. TensorFlow's processes take what they need.
        """
        fraction = f"{0.9 / self.count:.3f}"
        return {"XLA_PYTHON_CLIENT_MEM_FRACTION": fraction, **process_environment()}

    def _log(self, rank: int) -> Path:
        return self._path / "logs" / f"learner-{rank}.log"

    def _output(self, rank: int) -> Path:
        return self._path / "logs" / f"learner-{rank}.json"

    def look(self) -> None:
        """Start again what has been killed. Never waits.

        Raises:
            SeedbedError: a learner failed in a way that starting it again cannot mend, or too
                often.
        """
        for rank, process in list(self._processes.items()):
            code = process.poll()
            if code is None or rank in self._ended:
                continue
            if code == 0 and (self._stopping or not self._was_sent_away(rank)):
                self._ended.add(rank)
                continue
            self._again(rank, code)

    def _was_sent_away(self, rank: int) -> bool:
        """Whether it ended because somebody sent a signal to it alone."""
        summary = self.summary(rank)
        return summary is None or str(summary["stop_reason"]).startswith("signal ")

    def _again(self, rank: int, code: int) -> None:
        if code == ExitCode.DIVERGED and rank in self._may_diverge:
            self._may_diverge.remove(rank)
            log.warning(
                "learner %d has diverged, and no peer has got its parameters: started again, this "
                "once, with a peer's, where one has any; see %s",
                *(rank, self._log(rank)),
            )
        else:
            self._restarts.allow(rank, code, f"see {self._log(rank)}")
        self._arguments = [word for word in self._arguments if word != "--restart=overwrite"]
        self._start(rank)

    @property
    def over(self) -> bool:
        """Whether all have ended by themselves."""
        return len(self._ended) == self.count

    def stop(self) -> None:
        """End them: SIGTERM, and SIGKILL for those that do not leave in time."""
        self._stopping = True
        end_all("learner", self._processes, STOP_S)

    def summary(self, rank: int) -> dict[str, Any] | None:
        """What a learner printed at its end; None while it has printed nothing."""
        try:
            return dict(json.loads(self._output(rank).read_text()))
        except (OSError, ValueError):
            return None
