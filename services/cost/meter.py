"""The meter's loop: price the pods, keep the bill, end the experiment when it is over."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Protocol

from seedbed.runtime.metrics import TableCollector, Value, registry_of
from seedbed.services.cost.account import Account
from seedbed.services.cost.metrics import METRICS
from seedbed.services.cost.prices import PriceList
from seedbed.services.cost.usage import occupies, usage_of

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
LEARNER_TIMEOUT_S = 3.0
# How far beyond the budget the meter waits for the learner to end by itself.
GRACE = 1.02
# How long the end waits, once one learner has finished, for those that say nothing of an end, or
# nothing at all: a pod that was just killed comes back, and hears of it.
LATE_S = 120.0

Status = Mapping[str, Any]


class ClusterApi(Protocol):
    """What `Cluster` gives."""

    nodes_readable: bool

    def pods(self) -> list[Any]: ...
    def node(self, name: str) -> Any | None: ...
    def state(self) -> dict[str, str]: ...
    def keep(self, state: dict[str, str | None]) -> None: ...
    def actors_to_zero(self) -> None: ...
    def replay_to_zero(self) -> None: ...
    def learner_to_zero(self) -> None: ...


class CostMeter:
    """Everything that the meter knows of its release.

    Args:
        learners: each gives a learner's status (the object of its /status); raises OSError while
            that one does not answer.
        budget: `stop.dollars`; 0 is none.
        now: Unix time.
    """

    def __init__(
        self,
        cluster: ClusterApi,
        prices: PriceList,
        learners: Sequence[Callable[[], Status]],
        budget: float = 0.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._prices, self._learners = cluster, prices, learners
        self._asking = ThreadPoolExecutor(len(learners), thread_name_prefix="ask")
        self._budget, self._now = budget, now
        state = cluster.state()
        self.account = Account(state, now())
        # Learners of a new release that have not said yet what an earlier one has cost.
        self._new = set() if "dollars" in state else set(range(len(learners)))
        self._frames = [0] * len(learners)
        self._first_finished: float | None = None  # when one of them said so, in Unix time
        self.finished = state.get("finished", "")
        self._rates: dict[tuple[str, str], float] = {}
        self._pods: Counter[str] = Counter()
        self._restarts: dict[str, int] = {}
        self._errors: Counter[str] = Counter()
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self.registry = registry_of(TableCollector(METRICS, self._read))

    def run(self, stopping: threading.Event) -> None:
        """Look every few seconds until `stopping`; then keep the bill."""
        while not stopping.is_set():
            self.look()
            stopping.wait(LOOK_EVERY_S)
        self._try("state", lambda: self._keep(self._now()))

    def look(self) -> None:
        """Price what is there now, and end what is over. A call that fails is tried next time."""
        self._try("pods", self._price)
        statuses = self._ask()
        self._try("end", lambda: self._end(statuses))
        now = self._now()
        if self.account.due(now):
            self._try("state", lambda: self._keep(now))

    def bill(self) -> dict[str, Any]:
        """For the learner: GET /status."""
        with self._lock:
            self.account.add(self._now(), self.account.rate)
            return {
                "dollars": self.account.dollars,
                "dollars_per_hour": self.account.rate,
                "dollars_per_billion_frames": self.account.dollars_per_billion_frames,
                "price_table": self._prices.name,
                "price_table_date": self._prices.date,
                "finished": self.finished or None,
            }

    def _price(self) -> None:
        rates: dict[tuple[str, str], float] = defaultdict(float)
        pods: Counter[str] = Counter()
        restarts: Counter[str] = Counter()
        for pod in self._cluster.pods():
            if not occupies(pod):
                continue
            usage = usage_of(pod, self._cluster.node(pod.spec.node_name))
            rates[usage.component, self._prices.tier(usage)] += self._prices.dollars_per_hour(usage)
            pods[usage.component] += 1
            restarts[usage.component] += sum(
                status.restart_count for status in pod.status.container_statuses or []
            )
        for what in sorted(self._prices.unknown - self._said):
            log.warning("%s has no price in %s: the dearest one of its kind counts; "
                        "cost.prices adds one", what, self._prices.name)  # fmt: skip
        with self._lock:
            self._said |= self._prices.unknown
            # What was there once stays, at 0, so that graphs come down.
            self._rates = dict.fromkeys(self._rates, 0.0) | dict(rates)
            self._pods = Counter(dict.fromkeys(self._pods, 0) | dict(pods))
            self._restarts = dict.fromkeys(self._restarts, 0) | dict(restarts)
            # After the end only the meter itself is left: that is no cost of the experiment.
            over = self.finished and not self._trains(pods)
            self.account.add(self._now(), 0.0 if over else sum(rates.values()))

    def _ask(self) -> list[Status | None]:
        """The learners' statuses, None for one that does not answer: that is no failure of ours."""
        statuses = list(self._asking.map(_status_of, self._learners))
        with self._lock:
            for rank, status in enumerate(statuses):
                if status is None:
                    continue
                counters = status["counters"]
                self._frames[rank] = int(counters["env_frames"])
                if rank in self._new:
                    # One that goes on from an earlier release's volume knows what that has cost.
                    self.account.dollars = max(self.account.dollars, float(counters["dollars"]))
                    self._new.remove(rank)
            self.account.frames = max(self.account.frames, sum(self._frames))
        return statuses

    @staticmethod
    def _trains(pods: Mapping[str, int]) -> bool:
        """Whether there is anything but the meter itself."""
        return any(number for component, number in pods.items() if component != "cost")

    def _end(self, statuses: Sequence[Status | None]) -> None:
        answers = [status for status in statuses if status is not None]
        ending = [status for status in answers if status.get("over")]
        spent = self.account.dollars
        finished = self._finished_of(ending)
        if ending:
            # Actors first: the last evaluation needs none, and takes as long as it takes.
            self._cluster.actors_to_zero()
            if finished == len(ending) and (finished == len(self._learners) or self._late()):
                self._finish(ending[0]["over"])
        elif self._budget and spent >= GRACE * self._budget and self._trains(self._pods):
            # Nobody else does: the learner waits for a node, or crashes, or does not see us.
            self._cluster.actors_to_zero()
            self._finish(
                f"stop.dollars: {spent:.4g} of {self._budget:g}, ended by the cost meter because "
                f"the learner {'goes on' if answers else 'does not answer'}"
            )
        elif self.finished and any(status["state"] == "training" for status in answers):
            log.info("the experiment goes on")
            self.finished = ""
            self._cluster.keep({"finished": None, "finishedAt": None})

    def _finished_of(self, ending: Sequence[Status]) -> int:
        """How many have ended; the first of them is when the end began."""
        finished = len([status for status in ending if status["state"] == "finished"])
        if not finished:
            self._first_finished = None
        elif self._first_finished is None:
            self._first_finished = self._now()
        return finished

    def _late(self) -> bool:
        """Whether the others were waited for long enough."""
        return self._first_finished is not None and self._now() - self._first_finished >= LATE_S

    def _finish(self, reason: str) -> None:
        if not self.finished:  # said and written once, before the learner is gone
            log.info("the experiment is over (%s): its pods go to zero", reason)
            now = self._now()
            at = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
            self._cluster.keep({**self.account.to_keep(now), "finished": reason, "finishedAt": at})
            self.finished = reason
        # The learner last: while it answers, what failed is tried again.
        self._cluster.replay_to_zero()
        self._cluster.learner_to_zero()

    def _keep(self, now: float) -> None:
        with self._lock:
            self.account.add(now, self.account.rate)
            kept = self.account.to_keep(now)
        self._cluster.keep(kept)

    def _try(self, part: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._errors[part] += 1
            log.warning("%s: %s: %s; tried again in %g s", part, type(error).__name__,
                        " ".join(str(error).split())[:300], LOOK_EVERY_S)  # fmt: skip

    def _read(self) -> Mapping[str, Value]:
        with self._lock:
            account, prices = self.account, self._prices
            account.add(self._now(), account.rate)
            per_billion = account.dollars_per_billion_frames
            return {
                "seedbed_cost_dollars_per_hour": dict(self._rates),
                "seedbed_cost_dollars_total": account.dollars,
                "seedbed_cost_dollars_per_billion_frames": (
                    math.nan if per_billion is None else per_billion
                ),
                "seedbed_cost_frames_total": account.frames,
                "seedbed_cost_budget_dollars": self._budget,
                "seedbed_cost_pods": dict(self._pods),
                "seedbed_cost_pod_restarts": dict(self._restarts),
                "seedbed_cost_price_table": {(prices.name, prices.date): 1.0},
                "seedbed_cost_unknown_prices": dict.fromkeys(self._said, 1.0),
                "seedbed_cost_nodes_readable": float(self._cluster.nodes_readable),
                "seedbed_cost_errors_total": {
                    **dict.fromkeys(("pods", "end", "state"), 0),
                    **self._errors,
                },
                "seedbed_experiment_finished": {self.finished: float(bool(self.finished))},
            }


def _status_of(learner: Callable[[], Status]) -> Status | None:
    try:
        return learner()
    except (OSError, ValueError):
        return None


def ask_learner(url: str) -> dict[str, Any]:
    """The learner's /status.

    Raises:
        OSError: no answer. ValueError: no JSON.
    """
    with urllib.request.urlopen(url, timeout=LEARNER_TIMEOUT_S) as answer:
        status: dict[str, Any] = json.load(answer)
    return status
