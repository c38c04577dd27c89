"""The loop of a set's controller: admit runs, follow them, bring their rows home, end them.

A run that is awake is a release of its own, with a meter that ends it without this controller. A
run that waits has no objects. What is about to be done with a run is in the `Book` before it is
done, so that nothing follows from a view of the cluster that may be old.
"""

import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seedbed.deploy.obstacles import time_of
from seedbed.runs.layout import learner_directories
from seedbed.runs.served_files import BEST_FILE
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.text import counted, finite, printable
from seedbed.services.cost.parts import succeeds
from seedbed.services.sets.api import Pod, Refused
from seedbed.services.sets.book import Book, Entry, Outcome
from seedbed.services.sets.losses import let_go, note_losses
from seedbed.services.sets.page import Page
from seedbed.services.sets.rows import Learner, Visits
from seedbed.services.sets.spec import Spec
from seedbed.sets.admission import Admission
from seedbed.sets.ends import has_failed
from seedbed.sets.folder import Member, digests_of, write_set
from seedbed.sets.halving import members_at_rungs
from seedbed.sets.needs import Limits, needs_of
from seedbed.sets.run_objects import objects_of_run
from seedbed.sets.several import join_learners
from seedbed.sets.sweep import Budget

if TYPE_CHECKING:
    from seedbed.services.sets.api import SetApi

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
# A run whose pods cannot be made is withdrawn after this time, and tried again after these.
_REFUSED_S = 10.0
_AGAIN_S, _LONGEST_AGAIN_S = 30.0, 300.0
# What the rate of a run's meter adds to its bill since the meter's last save, at the most.
_LONGEST_SAVE_S = 60.0
# From the end of a run until its rows are at home: the meter waits 30 s of it for the last read.
_ROWS_S = 60.0
# So long a meter has to take a run to zero.
_METER_S = 60.0
# Starts of one round: each takes some fifteen calls.
_STARTS = 4
# Pauses that this controller has written into the state of a run.
_OURS = "set: "
_FATAL = re.compile(
    r"exit code (\d+) \(\w+\) of [^,:]+(?:, after \d+ restarts)?(?:: (.*))?$", re.DOTALL
)
_LETTERS = 300
# Deleted first, so that the meter outlives what it prices.
_WORKERS = ("StatefulSet", "JobSet", "Deployment", "ScaledObject")
_METERS = ("cost", "last-resort")
# Made once the learner has a pod.
_LATE = ("Deployment", "CronJob", "ScaledObject")


class SetController:
    """Runs of a set on a cluster.

    Args:
        api: The set's calls to the API server.
        spec: What the set is to do.
        folder: The folder of the set, as on one machine.
        learner: Returns a learner at an address, such as `http://a-learner-0.a-learner:9090`.
        owner: Reference to the set's release, which takes the runs with it; None leaves them.
        keep_secrets: Keeps the Secret of the set's tokens.
        frees_volumes: Whether the volumes of a run are deleted once the run is finished or pruned,
            and its rows and its best checkpoint are in the folder.
        now: Returns Unix time.
        clock: Returns monotonic time.

    Attributes:
        book: What is being done with each run.
        admission: Which run starts next.
        page: What is told of the set.
        limits: The set's limits.
        digests: Digests of the runs' settings, by name.
    """

    def __init__(
        self,
        api: "SetApi",
        spec: Spec,
        folder: Path,
        learner: Callable[[str], Learner],
        owner: Mapping[str, Any] | None = None,
        keep_secrets: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        frees_volumes: bool = False,
    ) -> None:
        self._api, self._spec, self._folder, self._owner = api, spec, folder, owner
        self._now, self._clock, self._keep_secrets = now, clock, keep_secrets
        self.limits = spec.limits
        self._frees_volumes = frees_volumes
        self.errors: Counter[str] = Counter()
        self.digests: dict[str, str] = {}
        self._write_set()
        self.book = Book.read(folder / "set" / "cluster.json")
        self.admission = Admission(
            folder,
            log.info,
            spec.wanted.sweep.budget,
            retries_failed=lambda one: self.book.of(one.name).retries,
            dollars_of=lambda one: self.book.of(one.name).dollars,
        )
        self._members: dict[str, Member] = {}
        self._visits = Visits(folder, learner)
        self._pods: list[Pod] = []
        self._has_pods = False
        self._state: dict[str, str] = {}
        self._run_states: dict[str, dict[str, str]] = {}
        self._counted: float | None = None
        self._urls: dict[str, list[str]] = {}  # of the learners of awake runs
        self._ending: dict[str, float] = {}  # since when a run ends, by the monotonic clock
        self._finished: dict[str, float] = {}  # when a run was first seen as finished
        self.ended_by = ""
        self.page = Page(self)
        self.reconciled_at = 0.0

    def run(self, stopping: threading.Event) -> None:
        """Reconcile every few seconds until `stopping`."""
        while not stopping.is_set():
            began = time.monotonic()
            self.reconcile()
            stopping.wait(max(0.0, began + POLL_INTERVAL_S - time.monotonic()))

    def reconcile(self) -> None:
        """Look at the cluster, and do the next step of each run.

        A call that fails is made again in the next round.
        """
        if self._unwritten:
            self._write_set()
        if self.book.unsaved:
            self._try("folder", self.book.save)
        self._try("folder", self._read_members)
        self._try("secrets", self._keep_secrets)
        known = self._try("state", self._read_state)
        if self._state.get("retry") == "failed":
            self._try("state", self._retry)
        self._has_pods = self._try("pods", self._read_pods)
        for name, entry in self.book.up().items():
            self._try("state", partial(self._read_run_state, name))
            self._book_dollars(name, entry)
        self._try("rows", lambda: self._visits.visit(self._learners()))
        for name in self.awake:
            self._try("rows", partial(self._join, name))
        self._try("folder", self._count)
        if known:
            self._try("end", self._end_some)
        for name in list(self.book.up()):
            self._try("runs", partial(self._step, name))
        if known and self._has_pods and self._try("folder", self._read_members):
            self._try("admission", self._admit)
        self._try("state", lambda: self.page.publish(self._api))
        if known:
            self._try("volumes", self._free_some)
        self.reconciled_at = self._now()

    @property
    def awake(self) -> dict[str, Entry]:
        """The runs that have objects and are not leaving, by name."""
        phases = ("starting", "learner", "awake", "ending")
        return {name: one for name, one in self.book.up().items() if one.phase in phases}

    @property
    def holds(self) -> str:
        """Why no other run starts; empty where nothing but the limits is in the way."""
        if reason := self._state.get("paused"):
            return f"paused: {reason}"
        other = self._refusal or self.admission.brake or self.admission.bound
        return self.ended_by or self.shortage or other

    @property
    def shortage(self) -> str:
        """Why nothing can be written here, with what to do; empty where it can."""
        why = self._unwritten or self.book.unsaved or self._visits.shortage
        return why and (
            f"no room on the controller's volume ({why}): enlarge it (--set "
            "set.persistence.size=20Gi, or the claim that the controller mounts)"
        )

    @property
    def dollars_per_hour(self) -> float:
        """US dollars an hour of the awake runs, by their meters."""
        total = 0.0
        for name in self.book.up():
            with suppress(ValueError):
                total += float(self._run_states.get(name, {}).get("dollarsPerHour", 0))
        return total

    @property
    def budget(self) -> Budget:
        """Bound of the whole set."""
        return self._spec.wanted.sweep.budget

    @property
    def calls(self) -> int:
        """Calls to the API server so far."""
        return self._api.calls

    @property
    def members(self) -> Mapping[str, Member]:
        """The runs by name, as of this round."""
        return self._members

    def waits(self, run: str) -> str:
        """Return why a pod of a run's learner has no node; empty where each has one."""
        return next((pod.waits for pod in self._of(run, "learner") if pod.waits), "")

    def paused(self, run: str) -> str:
        """Return why a person has paused a run; empty where none has."""
        return self._state.get(f"paused.{run}", "")

    def has_lost(self, member: Member) -> bool:
        """Return whether a run has failed, and no other try is asked for."""
        return has_failed(member) and not self.book.of(member.name).retries

    def _write_set(self) -> None:
        """Write the set into its folder; without room for it, the next round does."""
        self._refusal = self._unwritten = ""
        try:
            write_set(self._folder, self._spec.wanted)
            if self._spec.fresh is not None:
                write_set(self._folder, self._spec.fresh, confirms=True)
        except SeedbedError as error:  # other settings: the runs of before go on
            log.error("the set is not changed: %s", error)
            if isinstance(error.__cause__, OSError):
                self._unwritten = error.__cause__.strerror or str(error)
            else:
                self._refusal = str(error)
        self._try("folder", self._read_digests)

    def _read_digests(self) -> None:
        self.digests = digests_of(self._folder)

    # --- what is read ------------------------------------------------

    def _read_members(self) -> None:
        self._members = {member.name: member for member in members_at_rungs(self._folder)}

    def _read_state(self) -> None:
        self._state = self._api.state()

    def _retry(self) -> None:
        """Let the runs that have failed start again, and let the brake go."""
        for member in self._members.values():
            self.admission.wait_again(member)
            if has_failed(member):
                self.book.of(member.name).retries = True
        self.admission.brake = ""
        self.book.save()
        self._api.save_state({"retry": None}, self.page.runs_text())

    def _read_pods(self) -> None:
        pods = self._api.pods()
        self._pods = [pod for pod in pods if not pod.has_failed]
        learners: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.component == "learner":
                learners.setdefault(pod.run, []).append(pod)
        is_new = False
        for name, entry in self.book.up().items():
            is_new |= note_losses(entry, learners.get(name, []))
        if is_new:
            self.book.save()

    def _read_run_state(self, name: str) -> None:
        state = self._api.run_state(name) or {}
        if (finite(state.get("unixTime")) or 0.0) < self.book.of(name).begun:
            # An end of before: its meter, once it has come, compares the goal of then with its own.
            state = {key: text for key, text in state.items() if key != "finished"}
        self._run_states[name] = state

    def _book_dollars(self, name: str, entry: Entry) -> None:
        """Note what a run has cost until now, by its meter's last save and rate."""
        state = self._run_states.get(name, {})
        try:
            saved, rate = float(state["dollars"]), float(state.get("dollarsPerHour", 0))
            since_s = self._now() - float(state.get("unixTime", self._now()))
        except (KeyError, ValueError):
            return
        is_up = bool(self._of(name)) or not self._has_pods
        more = rate / 3600 * min(max(since_s, 0.0), _LONGEST_SAVE_S) if is_up else 0.0
        entry.dollars = max(entry.dollars, saved + more)

    def _of(self, name: str, *components: str) -> list[Pod]:
        """Return the present pods of a run, of some components or of all but its meters."""
        return [
            pod
            for pod in self._pods
            if pod.run == name
            and (pod.component in components if components else pod.component not in _METERS)
        ]

    def _learners(self) -> dict[str, list[str]]:
        """Return the addresses of the learners of each run that has one, by rank."""
        found = {}
        for name, entry in self.awake.items():
            if name in self._members and self._of(name, "learner"):
                if name not in self._urls:
                    urls = _status_urls(self._objects(name, entry))
                    self._urls[name] = [url.removesuffix("/status") for url in urls]
                found[name] = self._urls[name]
        return found

    def _join(self, name: str, is_over: bool = False) -> None:
        """Make one run of what several learners have told."""
        learners, member = self.book.of(name).learners, self._members.get(name)
        if learners > 1 and member is not None and learner_directories(member.run):
            join_learners(member.run, member.experiment, learners, is_over)

    def _count(self) -> None:
        """Count the time during which runs are awake."""
        now = self._clock()
        if self._counted is not None and self.awake:
            self.admission.spending.add_seconds(now - self._counted)
        self._counted = now

    # --- ends of runs ------------------------------------------------

    def _end_some(self) -> None:
        """Let runs end that the bound, a person or a lower limit ends."""
        running = [self._members[name] for name in self.awake if name in self._members]
        spent = self.admission.spent(running)
        exceeded = self.admission.spending.exceeded(spent)
        if exceeded and not self.ended_by:
            log.info("%s: each run ends with a last checkpoint", exceeded)
        self.ended_by = exceeded
        reason = self._state.get("paused", "")
        used, before = Limits(), _ending(self.book)
        for name, entry in sorted(self.awake.items(), key=lambda item: item[1].begun):
            if entry.phase not in ("learner", "awake"):
                used = used.plus(entry.needs)
                continue
            if exceeded:
                self._begin_end(name, "bound", exceeded)
            elif reason:
                self._begin_end(name, "paused", f"the set is paused: {reason}")
            elif own := self.paused(name):
                self._begin_end(name, "paused", own)
            elif over := _beyond(self.limits, used.plus(entry.needs)):
                self._begin_end(name, "limit", f"it is one more than {over}")
            used = used.plus(entry.needs)
        if _ending(self.book) > before:
            self.book.save()  # of all: each ends, also where there is no room for it

    def _begin_end(self, name: str, end: Outcome, why: str) -> None:
        log.info("%s ends: %s", name, why)
        entry = self.book.of(name)
        entry.phase, entry.end, entry.why = "ending", end, why

    def _step(self, name: str) -> None:
        """Do the next step of a run.

        What is not in the book is neither made nor deleted.
        """
        entry = self.book.of(name)
        if self.book.unsaved and entry.phase in ("starting", "learner", "leaving"):
            return
        if entry.phase == "starting":
            self._apply(name, entry)
        elif entry.phase == "learner":
            self._apply_rest(name, entry)
        elif entry.phase == "awake":
            self._judge(name, entry)
        elif entry.phase == "ending":
            self._end(name, entry)
        if entry.phase == "leaving":
            self._leave(name, entry)

    def _judge(self, name: str, entry: Entry) -> None:
        """Let a run leave that its meter has ended or paused, or whose pods cannot be made."""
        state = self._run_states.get(name, {})
        if not state.get("finished"):
            self._finished.pop(name, None)
        if reason := state.get("finished"):
            self._judge_finished(name, reason)
        elif reason := state.get("paused"):
            found = _FATAL.match(reason)
            if reason.startswith(_OURS):  # of before: what was asked for has been taken back
                self._api.save_run_state(name, {"paused": None})
            elif found:
                entry.code = int(found[1])
                self._begin_leave(name, "failed", printable(found[2] or reason)[:_LETTERS])
            else:
                self._keep_pause(name, reason)
                self._begin_end(name, "paused", reason)
                self.book.save()
        elif self._has_pods and (refusal := self._refusal_of(name, entry)):
            self._begin_leave(name, "refused", refusal)

    def _keep_pause(self, name: str, reason: str) -> None:
        """Keep the pause of a run, which its own state no longer tells once it waits."""
        if not self.paused(name):
            self._api.save_state({f"paused.{name}": reason}, self.page.runs_text())
            self._state[f"paused.{name}"] = reason

    def _judge_finished(self, name: str, reason: str) -> None:
        member = self._members.get(name)
        if member is None or member.is_finished:
            self._begin_leave(name, "finished", reason)
        elif reason.startswith("stop.dollars") and self.book.of(name).budget:
            self._begin_leave(name, "bound", reason)
        elif self._now() - self._finished.setdefault(name, self._now()) >= _ROWS_S:
            if self.shortage:
                self.book.of(name).retries = True  # it resumes at its end, to be read again
                text = "finished, and for want of room its last rows did not come home"
                self._begin_leave(name, "refused", text)
                return
            self._join(name, is_over=True)  # without a learner that its meter did not wait for
            if self._members[name].is_finished:
                self._begin_leave(name, "finished", reason)
                return
            self.book.of(name).code = 0
            text = f"finished ({reason}), and its last rows did not come home"
            self._begin_leave(name, "failed", text)

    def _refusal_of(self, name: str, entry: Entry) -> str:
        """Return why the API server makes no pods of a run; empty where they are there."""
        wanted = {"learner": max(1, entry.learners)}
        if entry.phase == "awake":
            wanted |= {"cost": 1, "actor": 1} if entry.actors else {"cost": 1}
        missing = [one for one, least in wanted.items() if len(self._of(name, one)) < least]
        if not missing and entry.phase == "awake" and not entry.has_come:
            entry.refusals, entry.has_come = 0, True
            self.book.save()
        if entry.has_come or self._now() - entry.begun < _REFUSED_S:
            return ""
        begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(entry.begun))
        for event in reversed(self._api.refusals()):
            owner = str(event["involvedObject"].get("name", ""))
            if time_of(event) >= begun and any(
                owner == f"{name}-{one}" or owner.startswith(f"{name}-{one}-") for one in missing
            ):
                return printable(str(event.get("message", "")))[:_LETTERS]
        return ""

    def _begin_leave(self, name: str, end: Outcome, why: str) -> None:
        entry = self.book.of(name)
        entry.phase, entry.end, entry.why = "leaving", end, why
        self.book.save()

    def _end(self, name: str, entry: Entry) -> None:
        """Let the meter take a run to zero: its learner saves.

        Where the meter does not, the pods end with their workloads, which lets them save, too.
        """
        state = self._run_states.get(name, {})
        waited_s = self._clock() - self._ending.setdefault(name, self._clock())
        if not (state.get("finished") or state.get("paused")):
            self._api.save_run_state(name, {"paused": f"{_OURS}{entry.why}"[:_LETTERS]})
            self._run_states[name] = {**state, "paused": entry.why}
        elif (self._has_pods and not self._of(name)) or waited_s >= _METER_S:
            self._begin_leave(name, entry.end, entry.why)

    def _leave(self, name: str, entry: Entry) -> None:
        """Delete what a run has: its workers, then its meter, and at last what they have read."""
        kinds = self._spec.kinds(name)
        meters = [one for one in kinds if one[0] in (*_WORKERS, "CronJob") and one[2] in _METERS]
        workers = [one for one in kinds if one[0] in _WORKERS and one not in meters]
        for kind, item, _ in workers:
            self._api.delete(kind, item)
        if not self._has_pods or self._of(name):
            return
        for kind, item, _ in meters:
            self._api.delete(kind, item)
        if self._of(name, *_METERS):
            return
        self._read_run_state(name)  # the bill at its end
        self._book_dollars(name, entry)
        # A run that was refused before its meter came leaves nothing: its state has nothing in it.
        leaves_nothing = entry.end == "refused" and not self._run_states[name]
        for kind, item, _ in kinds:
            if kind == "PersistentVolumeClaim":  # that is for people
                continue
            if leaves_nothing or item != f"{name}-state":
                self._api.delete(kind, item)
        if leaves_nothing and self._frees_volumes:
            for claim in self._api.claims(name, without_volume=True):
                self._api.delete("PersistentVolumeClaim", claim)
        self._settle(name, entry)

    def _settle(self, name: str, entry: Entry) -> None:
        """Note how a run has left, and let it wait where it has not ended."""
        member = self._members.get(name)
        lived_s = self._now() - entry.begun
        if member is not None:
            if entry.end == "finished":
                self.admission.note_finished()
            elif entry.end == "failed":
                self.admission.note_failure(member, entry.code, entry.why, lived_s)
            else:
                self.admission.wait_again(member)
        if entry.end == "refused":
            entry.refusals += 1
            pause_s = min(_AGAIN_S * 2 ** (entry.refusals - 1), _LONGEST_AGAIN_S)
            entry.again = self._now() + pause_s
        if entry.end in ("finished", "failed"):
            entry.retries = False
        self._run_states.pop(name, None)
        self._finished.pop(name, None)
        self._ending.pop(name, None)
        self._urls.pop(name, None)
        self._visits.forget(name)
        let_go(entry)
        entry.phase = "waiting"
        self.book.save()
        log.info("%s has left (%s): %s", name, entry.end, entry.why)

    # --- volumes -----------------------------------------------------

    def kept_for(self, member: Member) -> str:
        """Return why the volumes of a run that is over are kept, or that they are freed.

        It is empty where they are kept because nobody has asked for anything else.
        """
        entry = self.book.of(member.name)
        if entry.volumes:
            return "its volumes are freed"
        if not self._frees_volumes:
            return ""
        if self.paused(member.name):
            return "its volumes are kept: a person has paused it"
        read = [status.get("rows_read") is True for status in member.statuses()]
        if len(read) < entry.learners or not all(read):
            return "its volumes are kept: not all that it has written at its end has come home"
        elsewhere = "://" in member.experiment.learner.checkpoint.directory
        folders = learner_directories(member.run) or [member.run]
        if not elsewhere and not all((one / BEST_FILE).is_file() for one in folders):
            return "its volumes are kept: it has no best checkpoint here"
        return ""

    def _free_some(self) -> None:
        """Delete the volumes of runs that are over and have all that is to be kept at home."""
        if not self._frees_volumes or self.book.unsaved:  # and may delete none
            return
        for name, row in self.page.rows.items():
            entry, member = self.book.of(name), self._members[name]
            if entry.is_up or entry.volumes == "freed":
                continue
            if entry.volumes == "":
                is_over = row["state"] in ("finished", "pruned")
                if not is_over or self.kept_for(member):
                    continue
                _sync(member.run)
                entry.volumes = "freeing"
                self.book.save()
            for claim in self._api.claims(name):
                self._api.delete("PersistentVolumeClaim", claim)
            entry.volumes = "freed"
            self.book.save()
            self.page.reread(name)
            log.info("%s: its volumes are freed", name)

    # --- starts of runs ----------------------------------------------

    def _admit(self) -> None:
        """Start runs while the limits and the bound have room for them."""
        held = self._state.get("paused") or self.ended_by or self._refusal or self.shortage
        if held or self.admission.brake:
            return
        self.admission.bound = ""  # of a run that may have started since
        starts = 0
        for member, place in self.admission.waiting():
            entry = self.book.of(member.name)
            if entry.is_up or self.paused(member.name) or self._now() < entry.again:
                continue
            if entry.volumes:  # it would begin anew, and take the place of its rows
                continue
            if starts == _STARTS or not self._starts(member, place):
                return
            starts += 1
        if not self.book.up():
            self.admission.decides()

    def _starts(self, member: Member, place: str) -> bool:
        """Start a run; return False where the limits or the bound have no room."""
        entry = self.book.of(member.name)
        try:
            template = self._spec.template(member.experiment)
        except SeedbedError as error:  # the others can start
            entry.end, entry.why = "refused", printable(str(error))[:_LETTERS]
            entry.again = self._now() + _LONGEST_AGAIN_S
            return True
        needs = needs_of(template)
        if _beyond(self.limits, self.book.taken().plus(needs)):
            return False
        running = [self._members[name] for name in self.book.up() if name in self._members]
        if not self.admission.has_room(member, running):
            return False
        entry.phase, entry.end, entry.why, entry.begun = "starting", "", "", self._now()
        entry.has_come = False
        entry.budget = self._budget_of(entry, running)
        entry.learners, entry.actors, entry.gpus = needs
        try:
            self.book.save()
        except OSError:
            entry.phase = "waiting"
            raise
        self.admission.begin(member)
        log.info("%s begins (%s)", member.name, place)
        self._step(member.name)
        return True

    def _budget_of(self, entry: Entry, running: Sequence[Member]) -> float:
        """Return the bill at which a run's own meter ends it, if this controller is dead then.

        It is what the whole set has left, beside what the run has cost before.
        """
        if not self.budget.dollars:
            return 0.0
        left = self.budget.dollars - self.admission.spent(running).dollars
        return float(max(left + entry.dollars, 1e-6))

    def _objects(self, name: str, entry: Entry) -> list[dict[str, Any]]:
        experiment = self._members[name].experiment
        template = self._spec.template(experiment)
        return objects_of_run(template, name, experiment, entry.budget)

    def _apply(self, name: str, entry: Entry) -> None:
        """Make the learner of a run with what its pod mounts, if all of the run would be taken.

        What is refused costs nothing so.
        """
        # A meter must not find the pause of before, which would end the run at once.
        reason = (self._api.run_state(name) or {}).get("paused", "")
        if entry.retries:
            self._api.save_run_state(name, {"paused": None, "finished": None})
        elif reason.startswith(_OURS) or _FATAL.match(reason):
            self._api.save_run_state(name, {"paused": None})
        elif reason:
            self._keep_pause(name, reason)
            self._begin_leave(name, "paused", reason)
            return
        self._visits.begin(name)
        objects = self._objects(name, entry)
        early = [item for item in objects if item["kind"] not in _LATE]
        if self._takes(name, objects, dry_run=True) and self._takes(name, early):
            entry.phase = "learner"
            self.book.save()

    def _apply_rest(self, name: str, entry: Entry) -> None:
        """Make the meter and the actors of a run once the pod of its learner is there."""
        if refusal := self._refusal_of(name, entry) if self._has_pods else "":
            self._begin_leave(name, "refused", refusal)
            return
        if not self._of(name, "learner"):
            return
        late = [item for item in self._objects(name, entry) if item["kind"] in _LATE]
        if self._takes(name, late):
            entry.phase = "awake"
            self.book.save()

    def _takes(self, name: str, objects: Iterable[dict[str, Any]], dry_run: bool = False) -> bool:
        """Apply objects of a run, or only try to; return False where one is refused.

        The run then leaves.
        """
        try:
            for item in objects:
                if self._owner is not None:
                    item["metadata"]["ownerReferences"] = [dict(self._owner)]
                self._api.apply(item, dry_run)
        except Refused as refused:
            self._begin_leave(name, "refused", printable(str(refused))[:_LETTERS])
            return False
        return True

    def _try(self, part: str, call: Callable[[], object]) -> bool:
        return succeeds(part, call, self.errors, POLL_INTERVAL_S)


def _sync(folder: Path) -> None:
    """Wait until all files of a folder are on the disk.

    Raises:
        OSError: One cannot be written.
    """
    for path in (folder, *folder.rglob("*")):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _component(item: Mapping[str, Any]) -> str:
    labels = item["metadata"].get("labels", {})
    found: str = labels.get("app.kubernetes.io/component", "")
    return found


def _status_urls(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the addresses of the /status of a run's learners, which its meter is given."""
    option = "--learner="
    return [
        argument.removeprefix(option)
        for item in objects
        if item["kind"] == "Deployment" and _component(item) == "cost"
        for container in item["spec"]["template"]["spec"]["containers"]
        for argument in container.get("args", [])
        if argument.startswith(option)
    ]


def _ending(book: Book) -> int:
    return sum(entry.phase == "ending" for entry in book.up().values())


def _beyond(limits: Limits, wanted: Limits) -> str:
    """Return which limit some runs would pass, with both numbers; empty where none."""
    for name, most, number in zip(limits._fields, limits, wanted, strict=True):
        if most and number > most:
            return f"the {counted(most, name[:-1])} of --max-{name} ({number} with it)"
    return ""
