"""The meter's loop: price the pods, save the ledger, scale to zero when the experiment ends."""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError

from seedbed.numbers import check_number
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.http import get_json
from seedbed.runtime.metrics import Metric, StatsRegistry
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Role, Tokens
from seedbed.services.cost.ledger import Ledger
from seedbed.services.cost.metrics import METRICS, stop_condition
from seedbed.services.cost.prices import PriceList
from seedbed.services.cost.usage import component_of, exit_code_of, occupies_node, usage_of

if TYPE_CHECKING:
    from seedbed.services.cost.cluster import Cluster
    from seedbed.telemetry.status import RunStatus

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
LEARNER_TIMEOUT_S = 3.0
# The learner has until this part of the budget to end by itself.
BUDGET_GRACE = 1.02
# How long the end waits, once one learner has finished, for learners that report no end or do not
# answer, because a pod that was just killed comes back and finds the end.
STRAGGLER_TIMEOUT_S = 120.0


class CostMeter:
    """The cost and the end of a release.

    Attributes:
        finished: The stop condition that ended the experiment, with both numbers; "" before.
        rates: US dollars an hour, by component and tier.
        unknown: Each thing that had no price, with 1.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = METRICS

    def __init__(
        self,
        cluster: "Cluster",
        prices: PriceList,
        learners: "Sequence[Callable[[], RunStatus | None]]",
        budget: float = 0.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Restore the ledger of the release.

        Args:
            cluster: The release's pods and state.
            prices: What their requests cost.
            learners: Each returns a learner's status (the object of its /status), and None while
                the learner does not answer.
            budget: `stop.dollars`; 0 is none.
            now: Returns Unix time.
        """
        self.cluster, self.prices, self._learners = cluster, prices, learners
        self._asking = ThreadPoolExecutor(len(learners), thread_name_prefix="ask")
        self.budget_dollars, self._now = budget, now
        state = cluster.state()
        self.ledger = Ledger(state, now())
        # Learners of a new release that have not reported yet what an earlier release has cost.
        self._new = set() if "dollars" in state else set(range(len(learners)))
        self._frames = [0] * len(learners)
        # When the first learner reported its end, in Unix time.
        self._first_finished: float | None = None
        self.finished = state.get("finished", "")
        self.rates: dict[tuple[str, str], float] = {}
        self.pods: Counter[str] = Counter()
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
            self.reconcile()
            stopping.wait(POLL_INTERVAL_S)
        self._try("state", lambda: self._save(self._now()))

    def reconcile(self) -> None:
        """Price the present pods, and end what is over. A call that fails is tried next time."""
        self._try("pods", self._price)
        self._try("wanted", self._read_wanted)
        self._try("end", lambda: self._end(self._poll_learners()))
        now = self._now()
        if self.ledger.is_due(now):
            self._try("state", lambda: self._save(now))

    @property
    def dollars(self) -> float:
        """US dollars until now."""
        return float(self.status()["dollars"])

    @property
    def price_table(self) -> dict[tuple[str, str], float]:
        """Name and date of the price table, with 1."""
        return {(self.prices.name, self.prices.date): 1.0}

    @property
    def end(self) -> dict[str, float]:
        """The stop condition with 1; "" with 0 before."""
        return {stop_condition(self.finished): float(bool(self.finished))}

    def status(self) -> dict[str, Any]:
        """Return the object of GET /status, which the learners read."""
        with self._lock:
            self.ledger.charge(self._now(), self.ledger.rate)
            return {
                "dollars": self.ledger.dollars,
                "dollars_per_hour": self.ledger.rate,
                "dollars_per_billion_frames": self.ledger.dollars_per_billion_frames,
                "price_table": self.prices.name,
                "price_table_date": self.prices.date,
                "finished": self.finished or None,
            }

    def _price(self) -> None:
        rates: dict[tuple[str, str], float] = defaultdict(float)
        pods: Counter[str] = Counter()
        restarts: Counter[str] = Counter()
        exit_codes: dict[tuple[str, str], int] = {}
        for pod in self.cluster.pods():
            code = exit_code_of(pod)
            if code is not None:
                exit_codes[component_of(pod), pod.metadata.name] = code
            if not occupies_node(pod):
                continue
            usage = usage_of(pod, self.cluster.node(pod.spec.node_name))
            rates[usage.component, self.prices.tier(usage)] += self.prices.dollars_per_hour(usage)
            pods[usage.component] += 1
            restarts[usage.component] += sum(
                status.restart_count for status in pod.status.container_statuses or []
            )
        for what in sorted(self.prices.unknown - self.unknown.keys()):
            log.warning(
                "%s has no price in %s: the dearest one of its kind counts; cost.prices adds one",
                what,
                self.prices.name,
            )
        self.exit_codes = exit_codes
        with self._lock:
            self.unknown |= dict.fromkeys(self.prices.unknown, 1.0)
            # A component that was there once stays, at 0, so that graphs come down.
            self.rates = dict.fromkeys(self.rates, 0.0) | dict(rates)
            self.pods = Counter(dict.fromkeys(self.pods, 0) | dict(pods))
            self.restarts = dict.fromkeys(self.restarts, 0) | dict(restarts)
            # After the end only the meter's own pod is left, which is no cost of the experiment.
            over = self.finished and not _has_workers(pods)
            self.ledger.charge(self._now(), 0.0 if over else sum(rates.values()))

    def _read_wanted(self) -> None:
        self.wanted = self.cluster.wanted_replicas()

    def _poll_learners(self) -> "list[RunStatus | None]":
        """Return the learners' statuses, None for a learner that does not answer with one."""
        answers = self._asking.map(lambda ask: ask(), self._learners)
        statuses = [answer if _is_status(answer) else None for answer in answers]
        with self._lock:
            for rank, status in enumerate(statuses):
                if status is None:
                    continue
                counters = status["counters"]
                self._frames[rank] = int(counters["env_frames"])
                if rank in self._new:
                    # A learner on an earlier release's volume has counted what that release cost.
                    self.ledger.dollars = max(self.ledger.dollars, float(counters["dollars"]))
                    self._new.remove(rank)
            self.ledger.frames = max(self.ledger.frames, sum(self._frames))
        return statuses

    def _end(self, statuses: "Sequence[RunStatus | None]") -> None:
        answers = [status for status in statuses if status is not None]
        ending = [status for status in answers if status.get("over")]
        spent, budget = self.ledger.dollars, self.budget_dollars
        is_over = self._is_over(ending)
        if ending:
            # Actors first, because the last evaluation needs none.
            self.cluster.scale_to_zero("actor")
            if is_over:
                self._finish(printable(ending[0]["over"] or ""))
        elif budget and spent >= BUDGET_GRACE * budget and _has_workers(self.pods):
            # The learner did not: it waits for a node, crashes, or does not reach this meter.
            self.cluster.scale_to_zero("actor")
            self._finish(
                f"stop.dollars: {spent:.4g} of {budget:g}, ended by the cost meter because the "
                f"learner {'goes on' if answers else 'does not answer'}"
            )
        elif self.finished and any(status["state"] == "training" for status in answers):
            log.info("the experiment goes on")
            self.finished = ""
            self.cluster.save_state({"finished": None, "finishedAt": None})

    def _is_over(self, ending: "Sequence[RunStatus]") -> bool:
        """Tell whether all learners have ended, or the stragglers had their time since the first.

        A learner that answers and ends is never a straggler.
        """
        finished = [status["state"] for status in ending].count("finished")
        if not finished:
            self._first_finished = None
            return False
        if self._first_finished is None:
            self._first_finished = self._now()
        waited_s = self._now() - self._first_finished
        return finished == len(ending) and (
            finished == len(self._learners) or waited_s >= STRAGGLER_TIMEOUT_S
        )

    def _finish(self, reason: str) -> None:
        # Logged and saved once, before the learner's pod is gone.
        if not self.finished:
            log.info("the experiment is over (%s): its pods go to zero", reason)
            now = self._now()
            at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
            end = {"finished": reason, "finishedAt": at}
            self.cluster.save_state({**self.ledger.to_state(now), **end})
            self.finished = reason
        # The learner last, because what fails is tried again while the learner answers.
        self.cluster.scale_to_zero("replay")
        self.cluster.scale_to_zero("learner")

    def _save(self, now: float) -> None:
        with self._lock:
            self.ledger.charge(now, self.ledger.rate)
            state = self.ledger.to_state(now)
        self.cluster.save_state(state)

    def _try(self, part: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self.errors[part] += 1
            log.warning(
                "%s: %s: %s; tried again in %g s",
                part,
                type(error).__name__,
                " ".join(str(error).split())[:300],
                POLL_INTERVAL_S,
            )


def _has_workers(pods: Mapping[str, int]) -> bool:
    """Return whether there is any pod but the meter's own."""
    return any(number for component, number in pods.items() if component != "cost")


def _is_status(answer: Any) -> bool:
    """Return whether an answer has what the meter reads, in the ranges that a learner gives."""
    try:
        for name in ("env_frames", "dollars"):
            check_number(name, answer["counters"][name])
        return isinstance(answer["state"], str) and isinstance(answer.get("over") or "", str)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def read_learner(url: str, tokens: Tokens | None = None) -> Any:
    """Read a learner's /status.

    Args:
        url: The address of /status.
        tokens: Tokens of the meter, an observer; None: none is sent.

    Returns:
        The answer; None while the learner does not answer, or not with JSON.
    """
    try:
        return get_json(url, LEARNER_TIMEOUT_S, tokens, Role.OBSERVER)
    except (HTTPError, SeedbedError) as error:
        # Most likely a credential, which no waiting mends.
        log.warning("no status from %s: %s", url, printable(str(error)))
        return None
    except (OSError, ValueError):
        return None
