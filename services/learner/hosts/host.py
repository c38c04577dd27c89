"""One host of a learner: it meets the others, begins with the first one's state, and counts."""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import numpy as np

from seedbed.backends.coordination import HostPlace
from seedbed.backends.protocol import Backend
from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import leave_at_once
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.hosts.agreement import Agreement, StopNote
from seedbed.services.learner.hosts.totals import HostTotals
from seedbed.telemetry import Telemetry

log = logging.getLogger(__name__)

# Longest wait for the other hosts at the end, in seconds; and where the run was over before, so
# that they have yet to start.
_PART_S, _START_S = 30.0, 300.0
# Seconds between two times that a host tells its counts.
_TELL_S = 0.5


class LearnerHost:
    """One of several hosts of a learner.

    Args:
        experiment: the experiment, with `learner.hosts` above 1.
        host: number of this host, from 0.
        telemetry: the telemetry of this host.
        note: returns why this host is to stop; None while it goes on.

    Attributes:
        place: where this host meets the others.
        totals: counts of all hosts.
        agreement: agreement on each step; None before the hosts have met.
    """

    def __init__(
        self,
        experiment: Experiment,
        host: int,
        telemetry: Telemetry,
        note: Callable[[], StopNote | None],
    ) -> None:
        learner = experiment.learner
        self.place = HostPlace(host, learner.hosts, learner.coordinator)
        self._episodes = experiment.stop.mean_return_episodes
        self._telemetry, self._note = telemetry, note
        self.totals = HostTotals(host, telemetry.counters)
        self.agreement: Agreement | None = None
        self._blocked: AbstractContextManager[None] | None = None
        here = learner.coordinator.startswith(("127.", "localhost:"))
        telemetry.join_hosts(
            self.totals.total,
            lambda episodes: self.totals.returns(telemetry.own_returns, episodes),
            self.totals.others_done,
            host,
            1 if here else learner.hosts,
        )

    @property
    def is_first(self) -> bool:
        """Whether this host writes the checkpoints and judges the stop conditions."""
        return self.place.host == 0

    @property
    def decision(self) -> StopNote | None:
        """Why all hosts stop; None before."""
        return self.agreement.decision if self.agreement is not None else None

    def join(self, backend: Backend, meanwhile: Callable[[], None] = lambda: None) -> Agreement:
        """Join the other hosts, which `backends.use` has connected.

        Args:
            backend: the backend.
            meanwhile: called each second of a wait for the others.
        """
        assert backend.coordination is not None
        self.agreement = Agreement(
            backend.coordination,
            self._tell,
            self.totals.learn,
            self.totals.describe,
            self._note,
            self._waiting,
            meanwhile,
        )
        return self.agreement

    def keep_telling(self, stopping: threading.Event) -> None:
        """Tell the other hosts what this one counts, and watch them, until `stopping` is set."""
        assert self.agreement is not None
        while not stopping.wait(_TELL_S):
            try:
                self.agreement.share()
            except RuntimeError as error:  # the backend ends this process if one is lost
                text = "the other hosts do not answer: %s"
                log.warning(text, str(error).partition("\n")[0])
            silent = self.totals.silent()
            self._telemetry.late_hosts = f"waiting for {silent}" if silent else ""

    def begin(self, backend: Backend, components: LearnerComponents) -> None:
        """Wait until every host has built its model, and begin with the state of the first one.

        Raises:
            SeedbedError: CONFIG: another host has another model.
            ShuttingDown: a host stops.
        """
        agreement, shared, trainer = self.agreement, backend.coordination, components.trainer
        assert agreement is not None
        assert shared is not None
        counters = self._telemetry.counters
        if self.is_first:
            shared.put("begin", json.dumps([counters.updates, counters.skipped_updates]))
        layout = trainer.layout()
        size = sum(int(np.prod(shape)) for _, shape in layout)
        agreement.meet(f"a model of {len(layout)} arrays with {size} numbers")
        begin = shared.wait("begin", _PART_S)
        assert begin is not None, "the first host tells it before it has met the others"
        trainer.load(backend.from_first_host(trainer.state()))
        counters.updates, counters.skipped_updates = json.loads(begin)
        if not self.is_first:
            # The hosts act apart, and no host acts twice alike after a restart.
            for acting, step in enumerate(components.inference):
                seed = (*self.place[:2], counters.updates, acting)
                step.random = np.random.default_rng(seed)

    def leave(self) -> None:
        """Tell the other hosts that this one stops, where it has joined them."""
        if self.agreement is not None:
            with suppress(RuntimeError):
                self.agreement.leave()

    def end(
        self, failure: SeedbedError | None, may_wait: bool, is_asked: Callable[[], bool]
    ) -> SeedbedError | None:
        """Part from the other hosts. Return the failure with which this one ends, if any.

        Args:
            failure: failure of this host.
            may_wait: no thread of this host still works on an update.
            is_asked: returns whether a signal has asked this host to stop, too.
        """
        decision, agreement = self.decision, self.agreement
        if agreement is None:
            # The backend may wait for the others yet.
            leave_at_once()
            return failure
        lost = failure is not None and failure.code is ExitCode.HOSTS_FAILED
        if lost or not may_wait:
            leave_at_once()
            return failure
        try:
            agreement.part(_PART_S)
        except (SeedbedError, RuntimeError) as error:
            # Disconnecting alone would end the process before its checkpoint is written.
            leave_at_once()
            text = f"the hosts did not end together: {str(error).partition(chr(10))[0]}"
            failure = failure or SeedbedError(ExitCode.HOSTS_FAILED, text)
        if failure is not None or decision is None or decision.condition is not None:
            return failure
        # A signal to all hosts reaches one of them first.
        if decision.host != self.place.host and not is_asked():
            return SeedbedError(
                ExitCode.HOSTS_FAILED, f"host {decision.host} stopped ({decision.reason})"
            )
        return failure

    def tell_finished(self, backend: Backend, note: StopNote) -> None:
        """Tell the other hosts that there is nothing to do, and part from them."""
        agreement = self.join(backend)
        agreement.decision = note
        agreement.leave()
        with suppress(SeedbedError, RuntimeError):
            agreement.part(_START_S)
            return
        leave_at_once()

    def _tell(self) -> dict[str, object]:
        telemetry = self._telemetry
        waiting = None
        if telemetry.busy["training"].state[0] != "blocked":  # else it waits for others itself
            waiting = telemetry.waiting()
        return {
            "counters": telemetry.counters.to_json(),
            "done": telemetry.done(),
            "returns": telemetry.own_returns(self.totals.share(self._episodes)),
            "waiting_for": waiting,
        }

    def _waiting(self, text: str) -> None:
        clock = self._telemetry.busy["training"]
        if text and self._blocked is None:
            self._blocked = clock.blocked(text)
            self._blocked.__enter__()
        elif text:
            clock.waiting_for = text
        elif self._blocked is not None:
            self._blocked.__exit__(None, None, None)
            self._blocked = None
