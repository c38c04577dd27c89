"""The meter's loop: price the pods, save the ledger, end or pause the experiment."""

import json
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from seedbed.runs.standing import standing_of
from seedbed.runtime.metrics import Metric, StatsRegistry
from seedbed.runtime.text import counted, printable
from seedbed.services.cost.autoscaler import Autoscaler, Sample
from seedbed.services.cost.brake import Brake
from seedbed.services.cost.charges import VOLUME, present_charges
from seedbed.services.cost.idle import IdleClock
from seedbed.services.cost.learners import Learners
from seedbed.services.cost.ledger import Ledger
from seedbed.services.cost.metrics import METRICS, stop_condition
from seedbed.services.cost.never_starts import PendingClock, fatal_end, has_started
from seedbed.services.cost.parts import succeeds
from seedbed.services.cost.prices import PriceList
from seedbed.services.cost.traffic import Traffic
from seedbed.services.cost.usage import (
    Usage,
    component_of,
    exit_code_of,
    is_ready,
    occupies_node,
    usage_of,
)

if TYPE_CHECKING:
    from seedbed.services.cost.cluster import Cluster
    from seedbed.telemetry.status import RunStatus

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
# The learner has until this part of the budget to end by itself.
BUDGET_GRACE = 1.02
# How long the end waits, once one learner has finished, for learners that report no end or do not
# answer, because a pod that was just killed comes back and finds the end.
STRAGGLER_TIMEOUT_S = 120.0
# How long the end waits, once the learners have finished, for the controller of their set to read
# their files to the end.
ROWS_TIMEOUT_S = 30.0


class Goal(NamedTuple):
    """What ends or pauses a release.

    Attributes:
        budget: `stop.dollars`; 0 is none.
        idle_s: `stop.idle_s`; 0 is none.
        pending_s: `stop.pending_s`; 0 is none.
        run: Name of the run, whose bill the budget limits.
        key: The stop conditions and the run in any form: another key goes on after an end.
        paused: The chart's value `paused`.
        shards: Replay shards of the release.
        ttl_s: Time after the end at which the meter goes; 0 is never.
        set: Name of the set of the release, whose controller reads the learners' files; "" is none.
    """

    budget: float = 0.0
    idle_s: float = 0.0
    pending_s: float = 0.0
    run: str = ""
    key: str = ""
    paused: bool = False
    shards: int = 0
    ttl_s: float = 0.0
    set: str = ""


class CostMeter:
    """The cost and the end of a release.

    Attributes:
        rates: US dollars an hour, by component and tier.
        unknown: Each thing that had no price, with 1.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = METRICS

    def __init__(
        self,
        cluster: "Cluster",
        prices: PriceList,
        learners: "Sequence[Callable[[], Any]]",
        goal: Goal,
        keep_secrets: Callable[[], None] | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Restore the ledger of the release.

        Args:
            cluster: The release's pods and state.
            prices: What their requests cost.
            learners: Each returns a learner's status (the object of its /status), and None while
                the learner does not answer.
            goal: What ends or pauses the release.
            keep_secrets: Keeps the Secrets of the release; None where it has none.
            now: Returns Unix time, which may jump.
            clock: Returns monotonic time.

        Raises:
            SeedbedError: CONFIG, the state holds what no meter has written.
        """
        self.cluster, self.prices, self.goal = cluster, prices, goal
        self.learners = Learners(learners, goal.run)
        self._now, self._clock, self._keep_secrets = now, clock, keep_secrets
        state = cluster.state()
        self.ledger = Ledger(state, goal.run, clock(), cluster.bill)
        wanted = {"learner": len(learners), "replay": goal.shards}
        self.brake = Brake(cluster, goal.key, goal.paused, wanted, self._state, now)
        self.traffic = Traffic(clock)
        scaling = prices.settings.autoscaler
        self.autoscaler = Autoscaler(scaling) if scaling.enabled else None
        self._idle = IdleClock(goal.idle_s)
        self._pending = PendingClock(goal.pending_s)
        self._left = False  # a meter before this one
        # When the last resort has last done its work; before, when this meter began.
        self.last_resort_s = now()
        self._frames = [0] * len(learners)
        self._progress = ""  # JSON, as the state keeps it
        self._all_train = False  # at the last look
        # When the first learner reported its end.
        self._first_finished: float | None = None
        self.rates: dict[tuple[str, str], float] = {}
        self.pods: Counter[str] = Counter()
        self._ready: Counter[str] = Counter()
        self._present: list[Any] = []  # `V1Pod`s at the newest look, which waits for changes
        self.restarts: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self.exit_codes: dict[tuple[str, str], int] = {}
        self.errors: Counter[str] = Counter()
        self.unknown: dict[str, float] = {}
        self._lock = threading.Lock()
        self.registry = StatsRegistry(self)

    def run(self, stopping: threading.Event) -> None:
        """Reconcile every few seconds until `stopping`; then save the ledger."""
        while not stopping.is_set():
            began = time.monotonic()
            self.reconcile()
            stopping.wait(max(0.0, began + POLL_INTERVAL_S - time.monotonic()))
        self._try("state", self._save)

    def reconcile(self) -> None:
        """Price the present pods, and end what is over. A call that fails is tried next time."""
        self._try("state", self._follow)
        if self._keep_secrets is not None:
            self._try("secrets", self._keep_secrets)
        seen = self._try("pods", self._read_pods)
        if seen:
            self._try("pods", self._price)
        known = self._try("wanted", self._read_wanted)
        if known and self.autoscaler is not None and self.brake.is_off:
            # Before the end, which takes the actors to zero.
            self._try("autoscaler", self._autoscale)
        self._try("end", lambda: self._end(self._poll_learners()))
        if known and seen:
            self._try("end", self._judge_starts)
        self._try("end", lambda: self.brake.apply(self.wanted if known else None))
        if self.ledger.is_due(self._clock()):
            self._try("state", self._save)
        if known and seen:
            self._try("end", self._leave)

    @property
    def dollars(self) -> float:
        """US dollars until now."""
        return float(self.status()["dollars"])

    @property
    def dollars_by(self) -> dict[tuple[str, ...], float]:
        """US dollars of the present run, by component and tier."""
        return {tuple(part.split("/")): spent for part, spent in self.ledger.present.parts.items()}

    @property
    def per_billion_frames(self) -> dict[str, float]:
        """US dollars by component for a billion frames of the present run."""
        run, by = self.ledger.present, defaultdict[str, float](float)
        for part, spent in list(run.parts.items()) if run.frames else []:
            by[part.partition("/")[0]] += spent / run.frames * 1e9
        return by

    @property
    def dollar_bounds(self) -> dict[str, float]:
        """Bounds of the present run's US dollars."""
        return {"lower": self.ledger.present.lower, "upper": self.ledger.present.upper}

    @property
    def rate_bounds(self) -> dict[str, float]:
        """Bounds of the US dollars an hour."""
        return dict(zip(("lower", "upper"), self.ledger.bounds, strict=True))

    @property
    def price_table(self) -> dict[tuple[str, str], float]:
        """Name and date of the price table, with 1."""
        return {(self.prices.name, self.prices.date): 1.0}

    @property
    def end(self) -> dict[str, float]:
        """The stop condition with 1; "" with 0 before."""
        finished = self.brake.finished
        return {stop_condition(finished): float(bool(finished))}

    @property
    def paused(self) -> float:
        """1 while the release is paused."""
        return float(bool(self.brake.paused))

    def status(self) -> dict[str, Any]:
        """Return the object of GET /status, which the learners read."""
        with self._lock:
            self.ledger.charge(self._clock())
            return {
                "run": self.ledger.run,
                "bill": self.ledger.bill,
                "dollars": self.ledger.dollars,
                "dollars_per_hour": self.ledger.rate,
                "dollars_per_billion_frames": self.ledger.dollars_per_billion_frames,
                "price_table": self.prices.name,
                "price_table_date": self.prices.date,
                "finished": self.brake.finished or None,
                "paused": self.brake.paused or None,
            }

    def _read_pods(self) -> None:
        self._present = self.cluster.pods()

    def _price(self) -> None:
        placed: list[tuple[Usage, float | None]] = []
        pods: Counter[str] = Counter()
        ready: Counter[str] = Counter()
        restarts: Counter[str] = Counter()
        exit_codes: dict[tuple[str, str], int] = {}
        for pod in self._present:
            code = exit_code_of(pod)
            if code is not None:
                exit_codes[component_of(pod), pod.metadata.name] = code
            if not occupies_node(pod):
                continue
            usage = usage_of(pod, self.cluster.node(pod.spec.node_name))
            started = pod.status.start_time
            placed.append((usage, started.timestamp() if started else None))
            pods[usage.component] += 1
            ready[usage.component] += is_ready(pod)
            restarts[usage.component] += sum(
                status.restart_count for status in pod.status.container_statuses or []
            )
        if self.cluster.host_restarts:
            restarts["learner"] += self.cluster.host_restarts
        charges = present_charges(placed, self.cluster.claims(), self.traffic, self.prices)
        for what in sorted(self.prices.unknown - self.unknown.keys()):
            log.warning(
                "%s has no price in %s: the dearest one of its kind counts; cost.prices adds one",
                what,
                self.prices.name,
            )
        self.exit_codes = exit_codes
        # While the release is held only the meter's own pod is left, which is no cost of a run, and
        # the volumes.
        if self.brake.holds and not _has_workers(pods):
            charges = [charge for charge in charges if charge.part[1] == VOLUME]
        self._ready = ready
        with self._lock:
            self.unknown |= dict.fromkeys(self.prices.unknown, 1.0)
            self.ledger.reprice(charges, self._clock(), self._now())
            # A component that was there once stays, at 0, so that graphs come down.
            self.rates = dict.fromkeys(self.rates, 0.0) | self.ledger.rates
            self.pods = Counter(dict.fromkeys(self.pods, 0) | dict(pods))
            self.restarts = dict.fromkeys(self.restarts, 0) | dict(restarts)

    def _follow(self) -> None:
        state = self.cluster.state()
        self.last_resort_s = max(self.last_resort_s, float(state.get("lastResort", 0)))
        self._left = "meterLeftAt" in state
        self.brake.follow(state)

    def _judge_starts(self) -> None:
        """Pause what no restart mends; let the actors wait at zero for a learner."""
        if self.brake.holds:
            return
        if reason := fatal_end(self._present):
            self.brake.pause(reason)
            return
        learners = [pod for pod in self._present if component_of(pod) == "learner"]
        wanted = self.wanted.get("learner", 0)
        if reason := self._pending.reason(self._clock(), wanted, learners):
            self.brake.begin_wait(reason)
        elif any(map(has_started, learners)):
            self.brake.end_wait()

    def _leave(self) -> None:
        """Remove this meter and the last resort, once all has been at zero for long enough."""
        ended = self.brake.finished_at
        rests = not (any(self.wanted.values()) or _has_workers(self.pods) or self.brake.paused)
        is_due = ended is not None and self._now() - ended.timestamp() >= self.goal.ttl_s > 0
        if is_due and rests:
            log.info(
                "finished for %g s: the meter leaves; an upgrade brings it back", self.goal.ttl_s
            )
            left = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")
            self.cluster.save_state({**self._state(), "meterLeftAt": left})
            self.cluster.remove_meter()
        elif self._left:
            self.cluster.save_state({"meterLeftAt": None})

    def _autoscale(self) -> None:
        rates = self.ledger.rates.items()
        sample = Sample(
            at=self._clock(),
            frames=sum(self._frames),
            running=self._ready["actor"],
            wanted=self.wanted["actor"],
            dollars_per_hour=sum(rate for (component, _), rate in rates if component != "cost"),
            trains=self._all_train,
        )
        target = self.autoscaler.target(sample) if self.autoscaler else None
        if target is not None:
            log.info("%s after %d, by what a frame costs", counted(target, "actor"), sample.wanted)
            self.cluster.scale("actor", target)

    def _read_wanted(self) -> None:
        self.wanted = self.cluster.wanted_replicas()

    def _poll_learners(self) -> "list[RunStatus | None]":
        """Return the learners' statuses; count their frames and what an earlier release cost."""
        statuses = self.learners.poll()
        self._note_progress([status for status in statuses if status is not None])
        self._all_train = all(status and status["state"] == "training" for status in statuses)
        frames = 0
        with self._lock:
            for rank, status in enumerate(statuses):
                if status is None:
                    continue
                counters = status["counters"]
                self.traffic.count(rank, status)
                self._frames[rank] = int(counters["env_frames"])
                if rank not in self.ledger.asked:
                    # What the present pods have cost is charged from their start.
                    # It can tell what was before once it has this bill's name.
                    if status.get("bill") in (None, self.ledger.bill):
                        self.ledger.asked.add(rank)
                    earlier = float(status.get("earlier_dollars", 0.0))
                    self.ledger.carry(float(status["resumed_dollars"]), earlier)
                # Those of learners that have left count, as their dollars do.
                frames = max(frames, int((status.get("learners") or {}).get("env_frames", 0)))
            run = self.ledger.present
            run.frames = max(run.frames, sum(self._frames), frames)
        return statuses

    def _note_progress(self, answers: "Sequence[RunStatus]") -> None:
        """Keep how far the run is, for `seedbed list`, also of a release at zero."""
        with suppress(AttributeError, IndexError, KeyError, TypeError, ValueError):
            # The average of several learners is evaluated by none of them.
            last = (answers[0]["evaluation"] or {}) if len(self._frames) == 1 else {}
            frames = sum(int(status["counters"]["env_frames"]) for status in answers)
            standing = standing_of(answers, max(frames, self.ledger.frames), last)
            state = printable(answers[0]["state"])[:40]
            self._progress = json.dumps({"run": self.goal.run, "state": state, **standing})

    def _end(self, statuses: "Sequence[RunStatus | None]") -> None:
        if self.brake.holds:
            self._first_finished = None
            return
        answers = [status for status in statuses if status is not None]
        ending = [status for status in answers if status.get("over")]
        clock, frames = self._clock(), sum(self._frames)
        spent, budget = self.ledger.dollars, self.goal.budget
        idle = self._idle.reason(clock, frames, bool(answers), self.pods)
        is_over = self._is_over(ending)
        if ending:
            reason = printable(ending[0]["over"] or "")
            if is_over and self._are_read(ending):
                self.brake.finish(reason)
            else:
                self.brake.begin_end(reason)
        elif budget and spent >= BUDGET_GRACE * budget and _has_workers(self.pods):
            # The learner did not: it waits for a node, crashes, or does not reach this meter.
            reason = (
                f"stop.dollars: {spent:.4g} of {budget:g}, ended by the cost meter because the "
                f"learner {'keeps training' if answers else 'does not answer'}"
            )
            self.brake.finish(reason)
        elif idle:
            self.brake.pause(idle)
        elif any(status["state"] == "training" for status in answers):
            self.brake.call_off_end()

    def _is_over(self, ending: "Sequence[RunStatus]") -> bool:
        """Tell whether all learners have ended, or the stragglers had their time since the first.

        A learner that answers and ends is never a straggler.
        """
        finished = [status["state"] for status in ending].count("finished")
        if not finished:
            self._first_finished = None
            return False
        if self._first_finished is None:
            self._first_finished = self._clock()
        waited_s = self._clock() - self._first_finished
        return finished == len(ending) and (
            finished == len(self._frames) or waited_s >= STRAGGLER_TIMEOUT_S
        )

    def _are_read(self, finished: "Sequence[RunStatus]") -> bool:
        """Return whether an observer has all files of the learners, or the wait for it is over.

        The state keeps when the wait began, so that it goes on where this meter is killed. The
        last look comes before the end of the wait.

        Args:
            finished: Statuses of the learners, which have ended.
        """
        if not self.goal.set or all(status.get("rows_read") is True for status in finished):
            return True
        waited_s = abs(self._now() - self.brake.begin_read())
        return waited_s > ROWS_TIMEOUT_S - POLL_INTERVAL_S

    def _state(self) -> dict[str, str | None]:
        with self._lock:
            state = self.ledger.to_state(self._clock(), self._now())
        return state | ({"progress": self._progress} if self._progress else {})

    def _save(self) -> None:
        self.cluster.save_state(self._state())

    def _try(self, part: str, call: Callable[[], None]) -> bool:
        return succeeds(part, call, self.errors, POLL_INTERVAL_S)


def _has_workers(pods: Mapping[str, int]) -> bool:
    """Return whether there is any pod but the meter's own."""
    return any(number for component, number in pods.items() if component != "cost")
