"""`seedbed train --learners N`: the learner processes of one run, each with its own actors."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seedbed.config import Experiment
from seedbed.gossip.topology import make_topology
from seedbed.launch.learners_view import learners_line, read_statuses, run_summary
from seedbed.launch.supervisor import (
    Command,
    RestartPolicy,
    Supervisor,
    process_environment,
    seedbed_command,
)
from seedbed.runs.directory import RunDirectory
from seedbed.runs.layout import learner_directory, socket_path
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.signals import on_stop_signals
from seedbed.telemetry.progress_line import ProgressLine

log = logging.getLogger(__name__)

_POLL_S = 0.5
_FAILURES, _WINDOW_S = 5, 120.0
_STOP_TIMEOUT_S = 90.0  # for a last checkpoint
# A restart cannot help after these.
_FATAL = (
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


def train_multi_learner(
    experiment: Experiment, directory: RunDirectory, arguments: Sequence[str]
) -> dict[str, Any]:
    """Train until all learners have ended or a signal comes; return the run's summary.

    Args:
        experiment: the resolved experiment, with `gossip.replicas` learners.
        directory: the run directory; learner R's own one is `learner-R` in it.
        arguments: more arguments of `seedbed train` for each learner.

    Raises:
        SeedbedError: a learner failed in a way that a restart cannot mend, or too often.
    """
    make_topology(experiment.gossip)  # refuses a wrong topology before anything starts
    learners = LocalLearners(experiment, directory.path, arguments)
    stopping = threading.Event()
    on_stop_signals(lambda _: stopping.set())
    line = ProgressLine(sys.stderr)
    learners.start()
    due = time.monotonic()
    try:
        while not learners.supervisor.all_completed and not stopping.wait(_POLL_S):
            learners.supervisor.poll()
            if time.monotonic() >= due:
                due = time.monotonic() + experiment.logging.interval_s
                statuses = read_statuses(learners.directories)
                line.show(learners_line(statuses, learners.supervisor.running))
    finally:
        line.close()
        learners.supervisor.terminate_all()
    summaries = [learners.summary(rank) for rank in range(len(learners.directories))]
    first = next((summary for summary in summaries if summary is not None), None)
    finished = not stopping.is_set() and first and "dollars" not in first["stop_reason"]
    evaluation = None
    if finished and experiment.evaluation.at_end:
        evaluation = _evaluate(experiment, directory.path)
    summary = run_summary(read_statuses(learners.directories), summaries, evaluation)
    if finished:
        directory.write_summary(summary)
    return summary


class LocalLearners:
    """The learners of a run. One that is killed is restarted, and the others do not stop for it.

    Args:
        experiment: the resolved experiment.
        path: run directory of the run.
        arguments: more arguments of `seedbed train` for each learner.
    """

    def __init__(self, experiment: Experiment, path: Path, arguments: Sequence[str]) -> None:
        self._experiment, self._path, self._arguments = experiment, path, arguments
        count = experiment.gossip.replicas
        self.directories = [learner_directory(path, rank) for rank in range(count)]
        self._policy = RestartPolicy(
            "learner", _FAILURES * count, _WINDOW_S, ExitCode.LEARNERS_FAILED, _FATAL
        )
        self.supervisor = Supervisor(
            "learner", count, self._command, self._on_exit, _STOP_TIMEOUT_S
        )
        # With all-reduce all learners have the same parameters, so all of them have diverged.
        self._may_diverge = set(range(count)) if experiment.gossip.topology == "gossip" else set()

    def start(self) -> None:
        """Start every learner."""
        (self._path / "logs").mkdir(exist_ok=True)
        self.supervisor.start_all()
        # A restart resumes.
        self._arguments = [word for word in self._arguments if word != "--restart=overwrite"]

    def summary(self, rank: int) -> dict[str, Any] | None:
        """Return the summary that a learner printed at its end; None where there is none."""
        try:
            return dict(json.loads(self._output(rank).read_text()))
        except (OSError, ValueError):
            return None

    def _log(self, rank: int) -> Path:
        return self._path / "logs" / f"learner-{rank}.log"

    def _output(self, rank: int) -> Path:
        return self._path / "logs" / f"learner-{rank}.json"

    def _on_exit(self, rank: int, code: int) -> bool:
        """Return whether to restart a learner: not when it has met a stop condition."""
        log_file = self._log(rank)
        if code == ExitCode.OK and not self._was_terminated_externally(rank):
            return False
        if code == ExitCode.DIVERGED and rank in self._may_diverge:
            self._may_diverge.remove(rank)
            log.warning(
                "learner %d has diverged, and no peer has got its parameters: started again, this "
                "once, with a peer's, where one has any; see %s",
                rank,
                log_file,
            )
            return True
        return self._policy.on_exit(rank, code, f"see {log_file}")

    def _was_terminated_externally(self, rank: int) -> bool:
        """Return whether a signal that was sent to this learner alone has ended it."""
        summary = self.summary(rank)
        return summary is None or str(summary["stop_reason"]).startswith("signal ")

    def _command(self, rank: int) -> Command:
        arguments = ["train", str(self._path / "experiment.yaml"), "--rank", str(rank)]
        arguments += ["--run-dir", str(self.directories[rank]), *self._arguments]
        for key, value in self._settings(rank).items():
            arguments += ["--set", f"{key}={value}"]
        # All learners share one accelerator. JAX takes three quarters of its memory by default;
        # TensorFlow's processes take what they need.
        defaults = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / len(self.directories):.3f}"}
        return Command(arguments, self._log(rank), self._output(rank), defaults, own_group=True)

    def _settings(self, rank: int) -> dict[str, Any]:
        """Return the settings in which learner `rank` differs from the experiment."""
        experiment = self._experiment
        sockets = [socket_path(path).with_name("gossip.sock") for path in self.directories]
        settings: dict[str, Any] = {
            "gossip.addresses": json.dumps([f"unix:{socket}" for socket in sockets]),
            # The run's own last evaluation plays the average, or the best, of all learners.
            "evaluation.at_end": "false",
        }
        # Directories are each learner's own, wherever they are.
        if directory := experiment.learner.checkpoint.directory:
            settings["learner.checkpoint.directory"] = f"{directory}/learner-{rank}"
        if directory := experiment.learner.replay.directory:
            settings["learner.replay.directory"] = f"{directory}/learner-{rank}"
        if rank:
            settings["evaluation.every_frames"] = 0
        # So are ports, because all processes are on one machine.
        if port := experiment.learner.metrics_port:
            settings["learner.metrics_port"] = port + rank
        if port := experiment.actor.metrics_port:
            settings["actor.metrics_port"] = port + rank * experiment.actor.processes
        return settings


def _evaluate(experiment: Experiment, path: Path) -> dict[str, Any] | None:
    """Evaluate the parameters that `gossip.evaluation` names; None where that fails."""
    which = "best" if experiment.gossip.evaluation == "best" else "newest"
    policy = experiment.evaluation.policy
    command = seedbed_command("evaluate", str(path), "--checkpoint", which)
    command += ["--episodes", str(experiment.evaluation.episodes)]
    command += ["--policy", policy] if policy != "agent" else []
    errors = path / "logs" / "evaluation.log"
    with errors.open("ab") as file:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=file, check=False, env=process_environment()
        )
    if done.returncode:
        log.error("the last evaluation failed with exit code %d: see %s", done.returncode, errors)
        return None
    return dict(json.loads(done.stdout))
