"""The brake of a release: zero replicas once it is finished or paused, and the way back."""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from seedbed.runtime.text import counted, finite

if TYPE_CHECKING:
    from seedbed.services.cost.cluster import Cluster

log = logging.getLogger(__name__)

# Components of the experiment, the learner last: it says until then how the experiment has ended.
ORDER = ("actor", "replay", "learner")
BY_VALUE = "value"


class Brake:
    """End, pause and resumption of a release, which its state ConfigMap keeps.

    Each step is saved before it is done and can be done twice, so that a meter that is killed
    between two calls goes on where it was.

    Attributes:
        finished_at: When the experiment ended; None before, and where that is unknown.
        finished: The stop condition that ended the experiment, with both numbers; "" before.
        paused: Why the release is paused; "" while it is not.
        waiting: Why the actors are at zero until a learner starts; "" while they are not.
        held: Times that a component was scaled up and taken to zero again.
    """

    def __init__(
        self,
        cluster: "Cluster",
        goal: str,
        by_value: bool,
        wanted: Mapping[str, int],
        ledger: Callable[[], Mapping[str, str | None]] = dict,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Know of no end.

        Args:
            cluster: The release's pods and state.
            goal: The stop conditions and the run in any form: with another goal a finished
                experiment goes on.
            by_value: The chart's value `paused`.
            wanted: Replicas by component that the chart chooses and `kubectl scale` does not.
            ledger: Returns the keys of the ledger, which are saved before pods go.
            now: Returns Unix time.
        """
        self._cluster, self._goal, self._by_value = cluster, goal, by_value
        self._wanted, self._ledger, self._now = wanted, ledger, now
        self.finished = self.paused = self.waiting = ""
        self.finished_at: datetime | None = None
        self.held: Counter[str] = Counter()
        self._read_from: float | None = None  # Unix time
        # An end that has begun: the actors are at zero, and the learner plays its last evaluation.
        self._ending = ""
        self._before: dict[str, int] | None = None
        self._is_new = False  # read after the numbers that `apply` is given
        # What could not be saved yet: the state does not say it, and it counts all the same.
        self._unsaved: dict[str, str | None] = {}
        self._at_zero: set[str] = set()

    @property
    def holds(self) -> bool:
        """Whether everything is to be at zero."""
        return bool(self.finished or self.paused or self._by_value)

    @property
    def is_off(self) -> bool:
        """Whether neither an end nor a pause has begun, so that others may scale."""
        return not (self.holds or self._ending or self.waiting)

    def follow(self, state: Mapping[str, str]) -> None:
        """Take over what the state says: a meter before this one, or a person, has written it.

        Raises:
            Exception: what could not be saved cannot be saved now; nothing is taken over.
        """
        if self._unsaved:
            written = {**state, **self._unsaved}
            self._save()
            state = {key: text for key, text in written.items() if text is not None}
        self.finished, self.paused = state.get("finished", ""), state.get("paused", "")
        self._ending, self.waiting = state.get("ending", ""), state.get("waiting", "")
        self._read_from = finite(state.get("readFrom"))
        self._before, self._is_new = _replicas(state.get("resumeReplicas")), False
        if self.finished and state.get("goal", self._goal) != self._goal:
            log.info("the experiment continues: its stop conditions or its run have changed")
            self._save(finished=None, finishedAt=None, ending=None, readFrom=None, goal=None)
            self.finished = self._ending = ""
            self._read_from = None
        self.finished_at = _date(state.get("finishedAt", "")) if self.finished else None
        if self.paused and (self._ending or self.waiting):  # by hand: the learner is at zero, too
            self._save(ending=None, readFrom=None, waiting=None)
            self._ending = self.waiting = ""
            self._read_from = None
        if self.paused == BY_VALUE and not self._by_value:
            self._save(paused=None, pausedAt=None)
            self.paused = ""
        self._follow_choice(state.get("actorReplicas"))

    def _follow_choice(self, before: str | None) -> None:
        """Let the actors come back with the chart's number, where that is another than before."""
        chosen = self._cluster.chosen_actors
        if before == (None if chosen is None else str(chosen)):
            return
        changed: dict[str, str | None] = {"actorReplicas": None if chosen is None else str(chosen)}
        if chosen is not None and before and (self._before is not None or not self.is_off):
            changed["resumeReplicas"] = self._remember(actor=chosen)
        self._save(**changed)

    def begin_end(self, reason: str) -> None:
        """Take the actors to zero, because the last evaluation needs none.

        Args:
            reason: The stop condition that is met.
        """
        if not self._ending:
            self._save(ending=reason, resumeReplicas=self._remember())
            self._ending = reason

    def call_off_end(self) -> None:
        """Bring the actors back, because no learner says any more that the experiment is over."""
        if self._ending or self._read_from is not None:
            self._save(ending=None, readFrom=None)
            self._ending, self._read_from = "", None

    def begin_read(self) -> float:
        """Return the Unix time since which the end waits for the last read of the learners' files.

        Raises:
            Exception: The time cannot be saved now; it counts all the same.
        """
        if self._read_from is None:
            self._read_from = self._now()
            self._save(readFrom=f"{self._read_from:.1f}")
        return self._read_from

    def begin_wait(self, reason: str) -> None:
        """Take the actors to zero until a learner starts."""
        if not self.waiting:
            log.warning("the actors go to zero until a learner starts: %s", reason)
            self._save(waiting=reason, resumeReplicas=self._remember())
            self.waiting = reason

    def end_wait(self) -> None:
        """Bring the actors back, because a learner has started."""
        if self.waiting:
            self._save(waiting=None)
            self.waiting = ""

    def finish(self, reason: str) -> None:
        """Write down that the experiment is over, once.

        Args:
            reason: The stop condition, with both numbers.
        """
        if self.finished:
            return
        log.info("the experiment is over (%s): its pods go to zero", reason)
        # Holds, also where nothing can be saved.
        self.finished, self._ending, self.waiting = reason, "", ""
        self._read_from = None
        before = self._remember()
        end = {"finished": reason, "finishedAt": self._date(), "goal": self._goal}
        self._save(**end, resumeReplicas=before, ending=None, readFrom=None, waiting=None)

    def pause(self, reason: str) -> None:
        """Write down that the release is paused, once."""
        if self.paused:
            return
        log.info("the release is paused (%s): its pods go to zero", reason)
        self.paused, self._ending, self.waiting = reason, "", ""
        self._read_from = None
        before = self._remember()
        paused = {"paused": reason, "pausedAt": self._date()}
        self._save(**paused, resumeReplicas=before, ending=None, readFrom=None, waiting=None)

    def apply(self, replicas: Mapping[str, int] | None) -> None:
        """Hold at zero what is to be there, or bring back what a pause or an end took away.

        Args:
            replicas: What each component's workload asks for; None where it cannot be read.
        """
        if self._by_value:
            self.pause(BY_VALUE)
        if self.holds:
            if self._before is None:  # a person has written `paused`
                self._save(resumeReplicas=self._remember())
            self._hold(ORDER, replicas)
        elif self._ending or self.waiting:
            self._hold(("actor",), replicas)
        elif self._before is not None and replicas is not None:
            for name in reversed(ORDER):
                before = self._before.get(name, 0)
                if before and replicas.get(name) == 0:
                    number = self._wanted.get(name, before)
                    log.info("%s continues with %s", name, counted(number, "replica"))
                    self._cluster.scale(name, number)
            self._save(resumeReplicas=None)
            self._before = None
            self._at_zero.clear()

    def _hold(self, components: Sequence[str], replicas: Mapping[str, int] | None) -> None:
        errors = []
        for name in components:
            for step in (self._note_scale, self._take_to_zero):
                try:
                    step(name, None if replicas is None else replicas.get(name, 0))
                except Exception as error:  # the others must not wait for this one
                    errors.append(error)
        if errors:
            raise errors[0]

    def _note_scale(self, name: str, number: int | None) -> None:
        """Remember the number to which a component was scaled while it is held at zero."""
        is_known = self._before is None or self._is_new or self._before.get(name) == number
        if number and not is_known:
            self._save(resumeReplicas=self._remember(**{name: number}))

    def _take_to_zero(self, name: str, number: int | None) -> None:
        if number is None or number:
            if name in self._at_zero and number:
                self.held[name] += 1
                log.warning("%s was scaled up, and goes to zero again: %s", name, self._why())
            self._cluster.scale(name, 0)
        self._at_zero.add(name)

    def _why(self) -> str:
        if self.paused:
            return f"the release is paused ({self.paused}); docs/kubernetes.md says how to resume"
        if self.waiting:
            return f"{self.waiting}; the actors come back with a learner"
        return f"{self.finished or self._ending}; to continue, raise the stop condition and upgrade"

    def _remember(self, **others: int) -> str:
        """Return the replicas before the end or pause that is about to begin, as JSON.

        Args:
            others: Numbers by component that take the place of those.
        """
        if self._before is None:
            self._before, self._is_new = self._cluster.wanted_replicas(), True
            self._at_zero.clear()
        self._before |= others
        return json.dumps(self._before)

    def _date(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")

    def _save(self, **state: str | None) -> None:
        self._unsaved |= state
        self._cluster.save_state({**self._ledger(), **self._unsaved})
        self._unsaved = {}


def _replicas(text: str | None) -> dict[str, int] | None:
    try:
        return None if text is None else {str(k): int(v) for k, v in json.loads(text).items()}
    except (AttributeError, TypeError, ValueError):
        log.warning("resumeReplicas of the state is no JSON of numbers: %.100s", text)
        return {}


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
