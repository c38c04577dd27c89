"""`seedbed train --learners N`: the learner processes of one run, each with its own actors."""

import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from typing_extensions import override

from seedbed.config import Experiment
from seedbed.gossip.topology import make_topology
from seedbed.launch.devices import place_of_rank
from seedbed.launch.evaluation import EvaluationProcess
from seedbed.launch.learners_view import learners_line, read_json, run_summary
from seedbed.launch.local_processes import LocalProcesses, supervise
from seedbed.launch.supervisor import start_seedbed
from seedbed.runs.directory import RunDirectory
from seedbed.runs.layout import RANK_KEYS, learner_directory, socket_path
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.files import atomic_write
from seedbed.runtime.tokens import RANK_KEY_FILE_VARIABLE, new_rank_keys
from seedbed.telemetry.cost import dollars_per_hour
from seedbed.telemetry.progress_line import ProgressLine
from seedbed.telemetry.status import STATUS_FILE

log = logging.getLogger(__name__)

_POLL_S = 0.5
# Of a learner that a stop condition has ended, and that is not started again.
_AT_ITS_END = (ExitCode.OK, ExitCode.NO_FRAMES, ExitCode.NO_UPDATES)


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
    if directory.upload is not None:
        directory.upload.undo()
    learners = LocalLearners(experiment, directory, arguments)
    line = ProgressLine(sys.stderr)
    signals = supervise(learners, experiment.logging.interval_s, line)
    summaries = learners.summaries()
    first = next((summary for summary in summaries if summary is not None), None)
    finished = not signals and first and "dollars" not in first["stop_reason"]
    evaluation = None
    begun = time.monotonic()
    if finished and experiment.evaluation.at_end:
        evaluation = _evaluate(experiment, directory, signals, line)
        line.close()
    hours = (time.monotonic() - begun) / 3600
    dollars = hours * dollars_per_hour(experiment.cost)
    summary = run_summary(learners.statuses(), summaries, evaluation, dollars)
    if finished:
        directory.write_summary(summary)
    if directory.upload is not None and first and not signals:
        directory.upload.finish()
    return summary


class LocalLearners(LocalProcesses):
    """The learners of a run. One that is killed is restarted, and the others do not stop for it.

    Args:
        experiment: the resolved experiment.
        directory: the run directory.
        arguments: more arguments of `seedbed train` for each learner.
    """

    name = "learner"
    too_many = ExitCode.LEARNERS_FAILED

    def __init__(
        self, experiment: Experiment, directory: RunDirectory, arguments: Sequence[str]
    ) -> None:
        count = experiment.gossip.replicas
        super().__init__(count, directory.logs)
        self._experiment, self._run, self._arguments = experiment, directory, arguments
        self._directories = [learner_directory(directory.path, rank) for rank in range(count)]
        self._rank_keys = _write_rank_keys(directory.path / RANK_KEYS, count)
        # Where gradients are exchanged all learners have the same parameters, so all have diverged.
        self._may_diverge = set(range(count)) if experiment.gossip.topology == "gossip" else set()

    def statuses(self) -> list[Any]:
        """Return the status.json of each learner, None where there is none yet."""
        return [read_json(directory / STATUS_FILE) for directory in self._directories]

    def summaries(self) -> list[Any]:
        """Return the summary that each learner printed at its end; None where there is none."""
        return [read_json(self.output_file(rank)) for rank in range(len(self._directories))]

    @override
    def line(self) -> list[str]:
        return learners_line(self.statuses(), self.running)

    @override
    def on_exit(self, index: int, code: int) -> bool:
        """Return whether to restart a learner: not when it has met a stop condition."""
        summary = read_json(self.output_file(index))
        reason = str(summary["stop_reason"]) if summary else "signal "
        if code in _AT_ITS_END and not reason.startswith("signal "):
            return False  # else a signal that was sent to this learner alone has ended it
        if code == ExitCode.DIVERGED and index in self._may_diverge:
            self._may_diverge.remove(index)
            log.warning(
                "learner %d has diverged, and no peer has got its parameters: started again, this "
                "once, with a peer's, where one has any; see %s",
                index,
                self.log_file(index),
            )
            return True
        return super().on_exit(index, code)

    @override
    def start_process(self, index: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        arguments = ["train", str(self._run.experiment_yaml), "--rank", str(index)]
        arguments += ["--run-dir", str(self._directories[index]), *self._arguments]
        if index in self._processes:  # a learner that is started again resumes
            arguments += ["--restart=resume"]
        for key, value in self._settings(index).items():
            arguments += ["--set", f"{key}={value}"]
        place = place_of_rank(index, len(self._directories), self._experiment.learner.device)
        log.info("learner %d: %s", index, place.text)
        # JAX takes three quarters of an accelerator's memory by default; TensorFlow's processes
        # take what they need.
        defaults = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / place.learners:.3f}"}
        own = {RANK_KEY_FILE_VARIABLE: str(self._rank_keys[index])}
        with self.output_file(index).open("wb") as output:
            return start_seedbed(
                *arguments,
                defaults=defaults,
                overrides={**place.environment, **own},
                stdout=output,
                stderr=errors,
            )

    def _settings(self, rank: int) -> dict[str, Any]:
        """Return the settings in which learner `rank` differs from the experiment."""
        experiment = self._experiment
        sockets = [socket_path(path).with_name("gossip.sock") for path in self._directories]
        settings: dict[str, Any] = {
            "learner.upload": '""',  # the run is uploaded as a whole
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
        first = rank * experiment.learner.hosts
        if port := experiment.learner.metrics_port:
            settings["learner.metrics_port"] = port + first
        if port := experiment.actor.metrics_port:
            settings["actor.metrics_port"] = port + first * experiment.actor.processes
        return settings


def _write_rank_keys(folder: Path, count: int) -> list[Path]:
    """Write a new key of each learner's rank, and return the files, which only this user reads."""
    keys, digests = new_rank_keys(range(count))
    files = {folder / name: key + digests for name, key in keys.items()}
    folder.mkdir(mode=0o700, exist_ok=True)
    for file, text in files.items():
        atomic_write(file, text, is_private=True)
    return list(files)


def _evaluate(
    experiment: Experiment, run: RunDirectory, signals: Sequence[str], line: ProgressLine
) -> dict[str, Any] | None:
    """Evaluate the parameters that `gossip.evaluation` names; None where that fails.

    Args:
        experiment: the experiment.
        run: the run directory.
        signals: the stop signals so far; one ends the evaluation.
        line: shows its progress.
    """
    which = "best" if experiment.gossip.evaluation == "best" else "newest"
    process = EvaluationProcess(run, which, experiment.evaluation)
    while process.is_running:
        process.wait(_POLL_S)
        line.show([f"now: the last evaluation: {process.progress() or 'starting'}"])
        if signals:
            process.kill()
            log.error("the last evaluation was ended: a signal came")
            return None
    return process.result()
