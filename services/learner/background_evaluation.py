"""Background evaluation: `seedbed evaluate` of a checkpoint, in a process of its own."""

import json
import logging
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from seedbed.config import Experiment
from seedbed.launch.supervisor import start_evaluation
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.log_files import rotate_log
from seedbed.runtime.shortage import cure
from seedbed.services.learner.checkpointer import Checkpointer
from seedbed.telemetry import Telemetry

log = logging.getLogger(__name__)

FINAL_TIMEOUT_S = 1800.0
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
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._checkpoint = ""
        self.skip_final_evaluation = False
        self.best: float | None = None

    def _next_due(self) -> int:
        every = self._settings.every_frames
        return (self._telemetry.counters.env_frames // every + 1) * every if every else 0

    def poll(self, checkpointer: Checkpointer) -> None:
        """Start an evaluation that is due, or take the result of one that ended. Never waits."""
        if self._process is not None:
            if self._process.poll() is not None:
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
        self._checkpoint = Path(checkpoint).name
        self._run.store.pinned = self._checkpoint
        try:
            self._start_process()
        except OSError as error:
            # No descriptor or no room, which the next evaluation may have.
            log.error("%s cannot be evaluated: %s; %s", checkpoint, error, cure(error))
            self._close()
            return
        log.info("evaluating %s", checkpoint)

    def _start_process(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115, closed by _close
        self._run.logs.mkdir(parents=True, exist_ok=True)
        log_file = self._run.logs / "evaluation.log"
        rotate_log(log_file)
        with log_file.open("ab") as errors:
            self._process = start_evaluation(
                self._run.path,
                self._checkpoint,
                self._settings,
                # The learner uses the accelerator: some cannot be shared, others would run full.
                "--set=learner.device=cpu",
                stdout=self._output,
                stderr=errors,
            )
        # The evaluation takes the CPU time that training leaves.
        own = os.getpriority(os.PRIO_PROCESS, 0)
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, min(19, own + _NICE))

    def _wait(self, checkpointer: Checkpointer) -> None:
        if self._process is None:
            return
        self._telemetry.phase = "the last evaluation"
        deadline = time.monotonic() + FINAL_TIMEOUT_S
        while self._process.poll() is None:
            if self.skip_final_evaluation or time.monotonic() > deadline:
                slow = f"it took more than {FINAL_TIMEOUT_S:g} s"
                why = "a signal came" if self.skip_final_evaluation else slow
                log.error("the last evaluation was ended: %s", why)
                self._abandon()
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)
        self._take(checkpointer)

    def _abandon(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def _close(self) -> None:
        if self._output is not None:
            self._output.close()
        self._process = self._output = None

    def _take(self, checkpointer: Checkpointer) -> None:
        assert self._process is not None
        assert self._output is not None
        code = self._process.returncode
        self._output.seek(0)
        text = self._output.read()
        self._close()
        if code != 0:
            log.error(
                "evaluation of %s failed with exit code %d: see logs/evaluation.log",
                self._checkpoint,
                code,
            )
            return
        result: dict[str, Any] = json.loads(text)
        self._telemetry.evaluation.on_evaluation(result)
        mean = float(result["mean"])
        log.info(
            "evaluation of %s: mean %.4g over %d episodes",
            self._checkpoint,
            mean,
            result["episodes"],
        )
        if self.best is None or mean > self.best:
            try:
                checkpointer.store.save_best(self._checkpoint)
            except SeedbedError as error:
                # The run goes on, and a better checkpoint may follow.
                log.error(
                    "%s is the best so far, but could not be kept: %s", self._checkpoint, error
                )
                return
            self.best = mean
            log.info("%s is the best so far", self._checkpoint)
