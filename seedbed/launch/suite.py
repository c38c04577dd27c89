"""The runs of a suite, one after the other or some at once, as processes of `seedbed train`."""

import os
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from seedbed.launch.supervisor import last_cause_in, start_seedbed
from seedbed.runs.suite import Member
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.formats import percent, si_number, significant
from seedbed.runtime.log_files import rotate_log


class SuiteRunner:
    """Runs that are not finished, started in their order. Use it from the main thread alone.

    Args:
        members: Experiments of the suite.
        parallel: Number of runs at the same time.
        report: Takes a line about a run that begins or ends.

    Attributes:
        failed: Return codes of the runs that have failed, by name; below zero is a signal.
    """

    def __init__(
        self, members: Sequence[Member], parallel: int, report: Callable[[str], None]
    ) -> None:
        self._members, self._parallel, self._report = members, parallel, report
        self._running: dict[int, tuple[Member, subprocess.Popen[Any]]] = {}
        self._told: set[int] = set()
        self._stopping = False
        self.failed: dict[str, int] = {}

    def stop(self, _: str) -> None:
        """Let no other run begin, and tell those that are there to stop. For a signal handler."""
        self._stopping = True
        self._tell()

    def run(self) -> None:
        """Start every run that is not finished, and return when all have ended, or all stopped."""
        for number, member in enumerate(self._members, 1):
            if member.is_finished:
                continue
            while len(self._running) >= self._parallel:
                self._wait()
            if self._stopping:
                break
            self._start(member, f"{number} of {len(self._members)}")
        while self._running:
            self._wait()

    def _start(self, member: Member, place: str) -> None:
        member.log.parent.mkdir(exist_ok=True)
        rotate_log(member.log)
        begins = "resumes" if (member.run / "status.json").exists() else "begins"
        with member.log.open("ab") as errors:
            process = start_seedbed(
                *("train", str(member.file), f"--run-dir={member.run}"),
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self._running[process.pid] = member, process
        self._report(f"{member.name}: {begins} ({place}); `seedbed status {member.run}`")
        if self._stopping:  # since the process was asked for
            self._tell()

    def _tell(self) -> None:
        """Send SIGTERM to each process once: a second one would end it without a checkpoint."""
        for pid, (_, process) in list(self._running.items()):
            if pid not in self._told:
                self._told.add(pid)
                process.terminate()

    def _wait(self) -> None:
        """Wait until a process ends."""
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # `Popen` takes the exit code
        assert ended is not None
        member, process = self._running.pop(ended.si_pid)
        self._report(f"{member.name}: {self._end(member, process.wait())}")

    def _end(self, member: Member, code: int) -> str:
        """Return how a run has ended in words, and keep the code of a failed one."""
        if member.is_finished:
            return f"finished, {describe_score(member)}"
        if self._stopping:
            return "stopped, with a checkpoint if it had begun to train"
        self.failed[member.name] = code
        if not code:
            reason = member.summary().get("stop_reason")
            missing = "its last evaluation failed" if reason else "it was stopped"
            return f"not finished, {missing}: see {member.log} and {member.run / 'logs'}"
        return f"failed with {code_name(code)}: {last_cause_in(member.log)}; see {member.log}"


def code_name(code: int) -> str:
    """Return the return code of a failed run in words, without its help.

    Args:
        code: As of `subprocess`: a signal is below zero, and 0 is a run that ended too early.
    """
    if not code:
        return "not finished"
    if code < 0:
        return f"signal {-code}"
    return f"exit code {code}" + (f" ({ExitCode(code).name})" if code in set(ExitCode) else "")


def describe_score(member: Member) -> str:
    """Return what the newest evaluation of a run says, in words."""
    evaluation = member.last_evaluation()
    if evaluation is None:
        return "without an evaluation"
    frames = si_number(float(evaluation["env_frames"]))
    text = f"mean return {significant(float(evaluation['mean']))} after {frames} frames"
    if (score := evaluation["human_normalised"]) not in (None, ""):
        text += f", human-normalised {percent(float(score))}"
    return text
