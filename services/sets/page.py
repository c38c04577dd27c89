"""What the controller tells of a set: the set's state on the cluster, /status, and its metrics."""

import base64
import gzip
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from seedbed.runs.totals import Totals, sum_totals
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.text import finite, printable
from seedbed.sets.ends import read_ends
from seedbed.sets.folder import Member

if TYPE_CHECKING:
    from seedbed.services.sets.api import SetApi
    from seedbed.services.sets.controller import SetController

# Frames and dollars alone are saved so often; another state of a run is saved at once.
_SAVE_S = 15.0


class Row(TypedDict):
    """One run, as people see it.

    Attributes:
        state: waiting, starting, training, ending, finished, failed, diverged, pruned,
            `at its rung` or paused.
        reason: Why it waits, has ended or is paused; "" where there is nothing to tell.
        frames: Emulator frames so far.
        goal: Frames at which it ends; 0 where that is not known.
        score: Mean return of its newest evaluation; None before.
        dollars: What it has cost.
        seconds_left: Time to its end; None where that is not known.
        failures: Times that its learner has failed, whether a restart followed or not.
        preemptions: Pods of its learner that a drain, an eviction or the loss of a node has taken.
        digest: Digest of its settings, by which a later command finds it.
    """

    state: str
    reason: str
    frames: int
    goal: int
    score: float | None
    dollars: float
    seconds_left: float | None
    failures: int
    preemptions: int
    digest: str


class Page:
    """What is told of a set.

    Args:
        controller: The controller.

    Attributes:
        rows: Every run by name, as of the last round.
        moved: When each awake run was last seen with new frames, in Unix time.
    """

    def __init__(self, controller: "SetController") -> None:
        self._of = controller
        self.rows: dict[str, Row] = {}
        self.moved: dict[str, tuple[int, float]] = {}
        self._ended: dict[str, Row] = {}
        self._saved: tuple[Any, ...] = ()
        self._saved_at = 0.0

    def refresh(self) -> None:
        """Read the state of every run."""
        self.rows = {name: self._row(one) for name, one in self._of.members.items()}
        now = time.time()
        awake = self._of.awake
        self.moved = {
            name: self.moved[name]
            if name in self.moved and self.moved[name][0] == row["frames"]
            else (row["frames"], now)
            for name, row in self.rows.items()
            if name in awake
        }

    @property
    def is_told(self) -> bool:
        """Whether the set's state is what this controller has found."""
        return self._saved_at > 0

    def reread(self, name: str) -> None:
        """Read the state of a run anew, though the run is over."""
        self._ended.pop(name, None)

    def publish(self, api: "SetApi") -> None:
        """Save the set's state on the cluster, if it has changed.

        Raises:
            kubernetes.client.ApiException: The API server refuses.
        """
        self.refresh()
        now = time.time()
        states = tuple((name, row["state"], row["reason"]) for name, row in self.rows.items())
        changed = (states, self._of.holds, self._of.ended_by)
        if changed == self._saved and now - self._saved_at < _SAVE_S:
            return
        api.save_state(
            {
                "unixTime": f"{now:.0f}",
                "dollars": f"{self.dollars:.6f}",
                "dollarsPerHour": f"{self._of.dollars_per_hour:.6f}",
                "frames": str(self.frames),
                "endedBy": self._of.ended_by or None,
                "holds": self._of.holds or None,
            },
            self.runs_text(),
        )
        self._saved, self._saved_at = changed, now

    def runs_text(self) -> str:
        """Return every run, compressed, in base64."""
        text = json.dumps(self.rows, separators=(",", ":"), allow_nan=False)
        return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()

    def status(self) -> Mapping[str, Any]:
        """Return the object of /status."""
        return {
            "set": {"dollars": self.dollars, "frames": self.frames, "holds": self._of.holds},
            "ended_by": self._of.ended_by or None,
            "states": dict(Counter(row["state"] for row in self.rows.values())),
            "runs": self.rows,
        }

    @property
    def dollars(self) -> float:
        """US dollars of all runs together."""
        return sum(row["dollars"] for row in self.rows.values())

    @property
    def frames(self) -> int:
        """Emulator frames of all runs together."""
        return sum(row["frames"] for row in self.rows.values())

    def _row(self, member: Member) -> Row:
        entry = self._of.book.of(member.name)
        if member.name in self._ended and not entry.is_up and not entry.retries:
            return self._ended[member.name]
        statuses = member.statuses() if entry.is_up or member.run.exists() else []
        state, reason = self._state(member, statuses)
        newest = member.last_evaluation() if any(statuses) else None
        score = finite(str(newest["mean"])) if newest else None
        totals = sum_totals(member.run, statuses) if any(statuses) else Totals(0.0, 0.0, 0.0)
        left = [seconds for one in statuses if (seconds := (one.get("eta") or {}).get("seconds"))]
        row = Row(
            state=state,
            reason=reason,
            frames=int(totals.frames),
            goal=_goal(member, statuses),
            score=score,
            dollars=round(max(entry.dollars, totals.dollars), 6),
            seconds_left=max(left, default=None) if state == "training" else None,
            failures=sum(entry.restarts.values()) + len(read_ends(member)),
            preemptions=len(entry.preempted),
            digest=self._of.digests.get(member.name, ""),
        )
        if state in ("finished", "pruned") and not entry.is_up:
            self._ended[member.name] = row
        else:
            self._ended.pop(member.name, None)
        return row

    def _state(self, member: Member, statuses: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        """Return the state of a run, and what is to be told of it."""
        entry = self._of.book.of(member.name)
        if entry.phase in ("starting", "learner", "awake"):
            begun = [
                one["state"]
                for one in statuses
                if one.get("state") and float(one.get("time") or 0.0) >= entry.begun - 1
            ]
            if entry.phase != "awake" or not begun:
                return "starting", printable(self._of.waits(member.name))
            return ("ending" if {*begun} <= {"finished", "evaluating"} else "training"), ""
        if entry.phase in ("ending", "leaving") and entry.end != "refused":
            return "ending", entry.why
        if self._of.has_lost(member):
            (*_, last) = read_ends(member)
            lost = "diverged" if last["code"] == ExitCode.DIVERGED else "failed"
            return lost, printable(last["cause"])
        if member.is_pruned:
            return "pruned", _joined("others were better at its rung", self._of.kept_for(member))
        if member.is_finished:
            if not member.goes_to_end:
                return "at its rung", entry.why
            # A bound or a pause that came during the last evaluation has ended nothing.
            own = entry.why if entry.end == "finished" else ""
            own = own or str(member.summary().get("stop_reason") or "")
            return "finished", _joined(printable(own), self._of.kept_for(member))
        if reason := self._of.paused(member.name):
            return "paused", reason
        if entry.volumes:
            return "waiting", "its volumes are freed, and with them what it would go on from"
        if entry.end == "refused":
            again = time.strftime("%H:%M:%S", time.gmtime(entry.again))
            words = "" if entry.is_up else f"tried again from {again} UTC on, as there is room"
            return "waiting", _joined(entry.why, words)
        if any(statuses) and (reached := member.lacks_evaluation):
            return "waiting", f"for its last evaluation, having met {printable(reached)}"
        if statuses and all(one.get("state") == "evaluating" for one in statuses):
            return "waiting", "for its last evaluation, which was cut off"
        return "waiting", ""


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))


def _goal(member: Member, statuses: Sequence[Mapping[str, Any]]) -> int:
    if member.rung is not None:
        return member.rung.stop
    stops = [one["stop"] for one in statuses if one.get("stop")]
    return int(stops[0].get("env_frames") or 0) if stops else 0
