"""Background evaluation: `seedbed evaluate` of a checkpoint, in a process of its own."""

import logging
from pathlib import Path

from seedbed.config import Experiment
from seedbed.launch.evaluation import EvaluationProcess
from seedbed.runs.directory import RunDirectory
from seedbed.runs.evaluations import FILE, append_evaluation
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.shortage import cure
from seedbed.runtime.text import counted
from seedbed.services.learner.checkpointer import Checkpointer
from seedbed.telemetry import Telemetry

log = logging.getLogger(__name__)

_POLL_S = 0.2
_NICE = 5


class BackgroundEvaluation:
    """Evaluates a checkpoint every `evaluation.every_frames`, and keeps the best one.

    Attributes:
        skip_final_evaluation: set by a signal handler; `finish` waits no longer.
        best: mean return of the checkpoint kept as `best`, or None.
    """

    def __init__(self, experiment: Experiment, run: RunDirectory, telemetry: Telemetry) -> None:
        self._settings = experiment.evaluation
        self._run = run
        self._telemetry = telemetry
        self._next = self._next_due()
        self._wants_checkpoint = False
        self._process: EvaluationProcess | None = None
        self.skip_final_evaluation = False
        self.best: float | None = None

    def _next_due(self) -> int:
        every = self._settings.every_frames
        return (self._telemetry.counters.env_frames // every + 1) * every if every else 0

    def poll(self, checkpointer: Checkpointer) -> None:
        """Start an evaluation that is due, or take the result of one that ended. Never waits."""
        if self._process is not None:
            if self._process.is_running:
                self._telemetry.evaluation.progress = self._process.progress()
            else:
                self._take(checkpointer)
        elif self._wants_checkpoint:
            if checkpointer.idle and checkpointer.newest is not None:
                self._wants_checkpoint = False
                self._start(checkpointer.newest)
        elif self._next and self._telemetry.counters.env_frames >= self._next:
            self._next = self._next_due()
            self._wants_checkpoint = True
            checkpointer.request()

    def finish(self, checkpointer: Checkpointer, wanted: bool) -> None:
        """Wait for the evaluation under way and run the final one; end it unless `wanted`."""
        if not wanted or checkpointer.newest is None:
            self._abandon()
            return
        self._wait(checkpointer)
        if not self.skip_final_evaluation:
            self._start(checkpointer.newest)
            self._wait(checkpointer)

    def _start(self, checkpoint: str) -> None:
        name = Path(checkpoint).name
        self._run.store.pinned = name
        try:
            # The learner uses the accelerator: some cannot be shared, others would run full.
            self._process = EvaluationProcess(
                self._run, name, self._settings, "--set=learner.device=cpu"
            )
        except OSError as error:
            # No descriptor or no room, which the next evaluation may have.
            log.error("%s cannot be evaluated: %s; %s", checkpoint, error, cure(error))
            return
        self._process.be_nicer(_NICE)  # the evaluation takes the CPU time that training leaves
        log.info("evaluating %s", checkpoint)

    def _wait(self, checkpointer: Checkpointer) -> None:
        if self._process is None:
            return
        evaluation = self._telemetry.evaluation
        evaluation.is_last = True
        try:
            while self._process.is_running:
                if self.skip_final_evaluation:
                    log.error("the last evaluation was ended: a signal came")
                    self._abandon()
                    return
                evaluation.progress = self._process.progress()
                self._process.wait(_POLL_S)
            self._take(checkpointer)
        finally:
            evaluation.is_last = False

    def _abandon(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
            self._telemetry.evaluation.progress = ""

    def _take(self, checkpointer: Checkpointer) -> None:
        assert self._process is not None
        name, result = self._process.checkpoint, self._process.result()
        self._process = None
        self._telemetry.evaluation.progress = ""
        if result is None:
            return
        self._telemetry.evaluation.on_evaluation(result)
        try:
            append_evaluation(self._run.path, result)
        except OSError as error:
            log.error("%s has no row for %s: %s; %s", FILE, name, error, cure(error))
        mean = float(result["mean"])
        over = counted(result["episodes"], "episode")
        log.info("evaluation of %s: mean %.4g over %s", name, mean, over)
        if self.best is None or mean > self.best:
            try:
                checkpointer.store.save_best(name, mean)
            except SeedbedError as error:
                # The run goes on, and a better checkpoint may follow.
                log.error("%s is the best so far, but could not be kept: %s", name, error)
                return
            self.best = mean
            log.info("%s is the best so far", name)
