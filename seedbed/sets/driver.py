"""Drives a set: starts its runs as processes of `seedbed train`, some at once, to their ends."""

import os
import subprocess
import time
from multiprocessing.connection import wait
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.launch.supervisor import last_cause_in, start_seedbed
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.formats import percent, si_number, significant
from seedbed.runtime.limits import memory_kills
from seedbed.runtime.log_files import rotate_log
from seedbed.sets.admission import Admission
from seedbed.sets.code import note_begin
from seedbed.sets.disk import describe_disk, shortage
from seedbed.sets.ends import code_name
from seedbed.sets.folder import Member, read_members
from seedbed.sets.live import LiveSet
from seedbed.sets.shares import Shares
from seedbed.sets.stopped import is_stopped
from seedbed.sets.sweep import Budget

# Kills of one run, by a signal that nobody here has sent, without a new checkpoint between them.
_MOST_KILLS = 5
# Between two looks at the disk, and at what a set with a bound has spent.
_INTERVAL_S = 1.0


class _Running(NamedTuple):
    member: Member
    process: subprocess.Popen[Any]
    begun: float  # by the monotonic clock
    end: int  # descriptor that is readable once the process has ended
    slot: int  # of the machine's shares, from 0
    memory_kills: int  # by the kernel, when it began


class Driver:
    """Runs of a set that are not at their ends, started in their order.

    Runs that another command adds to the folder are started too. Use it from the main thread alone.

    Args:
        folder: The folder of the set.
        shares: How many runs train at the same time, and what each gets of the machine.
        live: Shows the runs that train, and tells which of them begin and end.
        budget: Bound of the set; None is none.
        retry: `failed` or `stopped`: start the runs that have failed before, or that a person has
            stopped, too.

    Attributes:
        admission: Which run starts next.
        shortage: Why the disk has no room for another run; empty where it has.
    """

    def __init__(
        self,
        folder: Path,
        shares: Shares,
        live: LiveSet,
        retry: str | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._folder, self._shares = folder, shares
        self._live, self._report = live, live.tell
        self._running: dict[int, _Running] = {}
        self._told: set[int] = set()
        self._stopping = False
        self._kills: dict[str, list[int]] = {}
        self.admission = Admission(
            folder,
            live.tell,
            budget,
            lambda _: retry == "failed",
            lambda _: retry == "stopped",
        )
        self._counted = time.monotonic()
        self._is_measured = False
        self.shortage = ""

    def stop(self, _: str) -> None:
        """Let no other run begin, and tell those that are there to stop. For a signal handler."""
        self._stopping = True
        self._live.leave()
        self._tell()

    def run(self) -> None:
        """Start every run that is to be started; return when all have ended, or all stopped."""
        while True:
            if len(self._running) >= self._shares.most or self._stopping or self.admission.brake:
                found = None
            else:
                found = next(self.admission.waiting(), None)
            if found is not None and self._fits(found[0]):
                self._start(*found)
            elif self._running:
                self._wait()
            elif self._stopping or self.shortage or not self.admission.decides():
                return

    def _fits(self, member: Member) -> bool:
        """Return whether the disk and the bound have room for a run beside those that run."""
        beside = self._members
        self.shortage = shortage(self._folder, [*beside, member])
        return not self.shortage and self.admission.has_room(member, beside)

    @property
    def _members(self) -> list[Member]:
        """The runs that run."""
        return [each.member for each in self._running.values()]

    def _keep_bound(self) -> None:
        """Count the time, and stop all runs where the bound is reached."""
        now = time.monotonic()
        if self._running:
            self.admission.spending.add_seconds(now - self._counted)
        self._counted = now
        spent = self.admission.spent(self._members)
        if not self._stopping and (reached := self.admission.spending.exceeded(spent)):
            self.admission.bound = reached
            self._report(f"{reached}: stopping each run with a last checkpoint")
            self.stop("")

    def _keep_room(self) -> None:
        """Stop all runs where the disk has no room for the last checkpoint of each."""
        if not self._stopping and (found := shortage(self._folder, self._members)):
            self.shortage = found
            self._report(f"{found}. Stopping each run with a last checkpoint")
            self.stop("")

    def _start(self, member: Member, place: str) -> None:
        self.admission.begin(member)
        note_begin(self._folder, member.name)
        member.log.parent.mkdir(exist_ok=True)
        rotate_log(member.log)
        begins = "begins"
        if member.has_begun:
            begins = "resumes" if member.has_checkpoint else "begins again without a checkpoint"
        rung = []
        if member.rung is not None and not member.rung.is_last:
            rung = [f"--set=stop.env_frames={member.rung.frames}"]
            begins += f", to the rung at {member.rung.frames:,} frames"
        slot = min({*range(len(self._running) + 1)} - {one.slot for one in self._running.values()})
        device = member.experiment.learner.device
        with member.log.open("ab") as errors, self._shares.given(slot, device) as environment:
            process = start_seedbed(
                *("train", str(member.file), f"--run-dir={member.run}", *rung),
                overrides=environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        end = os.pidfd_open(process.pid)
        self._running[process.pid] = _Running(
            member, process, time.monotonic(), end, slot, memory_kills()
        )
        self._report(f"{member.name}: {begins} ({place}); `seedbed status {member.run}`")
        if self._stopping:  # since the process was asked for
            self._tell()

    @property
    def _begun(self) -> dict[str, float]:
        """When each run that runs has begun, by its name, in Unix time."""
        since = time.time() - time.monotonic()
        return {one.member.name: since + one.begun for one in self._running.values()}

    def _tell(self) -> None:
        """Send SIGTERM to each process once: a second one would end it without a checkpoint."""
        for pid, running in list(self._running.items()):
            if pid not in self._told:
                self._told.add(pid)
                running.process.terminate()

    def _wait(self) -> None:
        """Wait until a process ends, for an interval at most."""
        self._keep_room()
        if self.admission.spending.has_bound:
            self._keep_bound()
        if self._shares.is_measuring:
            first = min(self._running.values(), key=attrgetter("begun"))
            self._shares.measure(list(self._running), first.begun, bool(first.member.frames))
        ended = wait([each.end for each in self._running.values()], _INTERVAL_S)
        if not ended:
            self._live.show(self._begun)
            return
        running = next(each for each in self._running.values() if each.end == ended[0])
        code = running.process.wait()
        del self._running[running.process.pid]
        os.close(running.end)
        if self._shares.is_measuring and running.member.frames:
            self._shares.choose()
        was_on = self.admission.brake
        self._report(f"{running.member.name}: {self._end(running, code)}")
        if not self._is_measured and running.member.is_finished:
            self._is_measured = True
            members = read_members(self._folder)
            self._report(describe_disk(self._folder, members, len(members)))
        if self.admission.brake and not was_on:
            self._report(self.admission.brake)
        self._live.show_end(self._begun)

    def _end(self, running: _Running, code: int) -> str:
        """Return how a run has ended in words, and record the end of a failed one."""
        member = running.member
        if member.is_finished:
            self.admission.note_finished()
            state = "finished" if member.goes_to_end else "at its rung"
            return f"{state}, {describe_score(member)}"
        if self._stopping or is_stopped(member):
            return "stopped, with a checkpoint if it had begun to train"
        cause = last_cause_in(member.log)
        if found := shortage(self._folder, [member]):
            self.shortage = found
            return f"ended for want of room: {cause}"
        if code == ExitCode.RUN_DIRECTORY and " is in use by " in cause:
            return f"left to the process that trains it: {cause}"
        if code < 0 and self._may_go_on(member):
            self.admission.wait_again(member)
            why = " for want of memory" if memory_kills() > running.memory_kills else ""
            return f"killed by {code_name(code)}{why}; it resumes from its newest checkpoint"
        if not code and not member.summary():
            return "stopped by a signal of another process; the same command goes on"
        lived_s = time.monotonic() - running.begun
        self.admission.note_failure(member, code, cause, lived_s)
        if not code:
            logs = member.run / "logs"
            return f"not finished, its last evaluation failed: see {member.log} and {logs}"
        return f"failed with {code_name(code)}: {cause}; see {member.log}"

    def _may_go_on(self, member: Member) -> bool:
        """Return whether a run that was killed is started again: unless it makes no progress."""
        kills = self._kills.setdefault(member.name, [])
        kills.append(member.frames)
        return len(kills) < _MOST_KILLS or kills[-1] > kills[-_MOST_KILLS]


def describe_score(member: Member) -> str:
    """Return the newest evaluation of a run in words."""
    evaluation = member.last_evaluation()
    if evaluation is None:
        return "without an evaluation"
    frames = si_number(float(evaluation["env_frames"]))
    text = f"mean return {significant(float(evaluation['mean']))} after {frames} frames"
    if (score := evaluation["human_normalised"]) not in (None, ""):
        text += f", human-normalised {percent(float(score))}"
    return text
