"""The threads that train: one builds the next batch while the other one updates the parameters."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.gossip.exchange import ParameterExchange, ShuttingDown
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents, ParameterStore
from seedbed.services.learner.hosts.agreement import Agreement
from seedbed.services.learner.training.quarantine import Quarantine
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.telemetry import Telemetry

log = logging.getLogger(__name__)


class PrefetchThread:
    """Inserts unrolls into the batch source, and builds the next batch while training is busy."""

    def __init__(self, queue: UnrollQueue, telemetry: Telemetry) -> None:
        self._queue = queue
        self._telemetry = telemetry
        self._updates = -1
        self._progress_at = time.perf_counter()

    def probe(self, limit_s: float) -> str | None:
        """Return why no unroll has reached training for `limit_s`, or None. Main thread."""
        now, updates = time.perf_counter(), self._telemetry.counters.updates
        full = self._queue.unrolls >= self._queue.capacity_unrolls
        training_idle = self._telemetry.busy["training"].state[0] == "idle"
        if updates != self._updates or not (full and training_idle):
            self._updates, self._progress_at = updates, now
        elif now - self._progress_at > limit_s:
            waited_s, unrolls = now - self._progress_at, self._queue.unrolls
            return f"prefetch handed on nothing for {waited_s:.0f} s with {unrolls} unrolls waiting"
        return None

    def run(self, components: LearnerComponents, stopping: threading.Event) -> None:
        """Insert and prefetch until `stopping` is set."""
        source, busy = components.source, self._telemetry.busy["prefetch"]
        try:
            while not stopping.is_set():
                waiting = self._queue.wait(0.0 if source.may_prefetch() else POLL_S)
                if waiting and source.wait_until_insertable(busy, stopping):
                    unroll = self._queue.get(POLL_S)
                    if unroll is not None:
                        with busy:
                            self.insert(components, unroll)
                source.prefetch(busy, stopping)
        finally:
            source.close()

    def insert(self, components: LearnerComponents, unroll: Any) -> None:
        """Insert what a session has completed, and count the frames that went into replay.

        Args:
            components: hold the batch source.
            unroll: a `SessionUnroll`, or a `SequenceChunk` for replay.
        """
        frames = components.source.insert(unroll) * components.spec.action_repeat
        self._telemetry.counters.inserted_frames += frames


class TrainingThread:
    """Updates the parameters with the batches of the source, and publishes them.

    Args:
        store: where parameters are published.
        telemetry: receives the scalars of each update.
        on_batch_done: called when a batch has been trained on or discarded.
        quarantine: keeps the batches of skipped updates.
        max_skipped_updates: updates skipped in a row that end the run.
        frozen: make no update (for tests and benchmarks).

    Attributes:
        exchange: exchanges parameters with peers; None without peers.
        observers: called with each batch before its first update.
        step_since: when the current update started; None while it compiles, or between updates.
        hosts: agreement with the other hosts of this learner; None without any.
        abandoned: set where the process ends without the update that is under way, whose frames
            count as discarded.
    """

    def __init__(
        self,
        store: ParameterStore,
        telemetry: Telemetry,
        on_batch_done: Callable[[], None],
        quarantine: Quarantine,
        max_skipped_updates: int = 10,
        frozen: bool = False,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._on_batch_done = on_batch_done
        self._quarantine = quarantine
        self._max_skipped = max_skipped_updates
        self._skipped = 0  # in a row
        self._frozen = frozen
        self._stopping = threading.Event()
        self._state_requests: queue.Queue[Future[dict[str, NDArray[Any]]]] = queue.Queue()
        self._warned = False  # of the sequences of another run
        self._compiled = False
        self.exchange: ParameterExchange | None = None
        self.observers: list[Callable[[TrainingBatch], None]] = []
        self.step_since: float | None = None
        self.hosts: Agreement | None = None
        self.abandoned = False

    def request_state(self) -> Future[dict[str, NDArray[Any]]]:
        """Request the trainer's state between two updates. Any thread."""
        future: Future[dict[str, NDArray[Any]]] = Future()
        self._state_requests.put(future)
        return future

    def give_states(self, components: LearnerComponents) -> None:
        """Complete the requests of `request_state`. Between two updates only."""
        while not self._state_requests.empty():
            request = self._state_requests.get_nowait()
            # Who asked may have left meanwhile.
            if request.set_running_or_notify_cancel():
                request.set_result(components.trainer.state())

    def probe(self, limit_s: float) -> str | None:
        """Return why training has made no progress for `limit_s`, or None. Any thread."""
        since = self.step_since
        busy_s = time.perf_counter() - since if since is not None else 0.0
        return f"training has worked on one step for {busy_s:.0f} s" if busy_s > limit_s else None

    def run(self, components: LearnerComponents, stopping: threading.Event) -> None:
        """Train until `stopping` is set, then complete the state requests that are left."""
        self._stopping = stopping
        try:
            self._compile_ahead(components)
            while not stopping.is_set() and not (self.hosts and self.hosts.decision):
                self.give_states(components)
                batch = components.source.next_batch(POLL_S)
                if self.hosts is not None and not self.hosts.all_go(batch is not None):
                    if batch is not None:
                        self._discard(components, batch.steps, "the learner stopped")
                elif batch is not None:
                    self.train(components, batch)
            self.give_states(components)
        finally:
            if self.hosts is not None:
                self.hosts.leave()

    def _compile_ahead(self, components: LearnerComponents) -> None:
        """Compile the update while the actors open their environments."""
        # Peers and other hosts have compiled functions of their own.
        if not (self._frozen or self.exchange or self.hosts):
            self._telemetry.phase = "compiling the training step"
            components.source.compile_ahead()
            self._telemetry.phase = "training"

    def train(self, components: LearnerComponents, batch: TrainingBatch) -> None:
        """Make the updates of all passes over a batch.

        The first one that is skipped ends it: what is bad in the batch would be in the next pass.
        So does a stop of the learner, except on several hosts, which make the same updates.

        Raises:
            SeedbedError: DIVERGED: too many updates in a row were skipped.
        """
        for observe in self.observers:
            observe(batch)
        # A synchronous agent trains on no batch that other parameters acted in.
        if self._resync(components) and components.agent.synchronous:
            self._discard(components, batch.steps, "its learner was left out by its peers")
            return
        left = batch.steps  # the frames of a batch count once, in its first pass
        for number, parts in enumerate(components.source.passes(batch)):
            for part in parts:
                fresh = part.steps if number == 0 else 0
                if why := self._train_part(components, part, fresh):
                    self._discard(components, left, why)
                    return
                if self.abandoned:
                    return
                left -= fresh
                self.give_states(components)
                if self._stopping.is_set() and self.hosts is None:
                    self._discard(components, left, "the learner stopped")
                    return
        self._on_batch_done()

    def _train_part(self, components: LearnerComponents, part: TrainingBatch, fresh: int) -> str:
        """Make an update, or skip it. Return why the batch can make no other one, or nothing.

        Args:
            components: the trainer, and the source of the batch.
            part: the part of a batch that makes the update.
            fresh: steps of it that no update has counted.

        Raises:
            SeedbedError: DIVERGED: too many updates in a row were skipped.
        """
        version, started = self._telemetry.counters.updates, time.perf_counter()
        try:
            scalars = {} if self._frozen else self._update(components, part)
        except ShuttingDown:
            return "the learner stopped"
        self._warn_of_another_run(part, version)
        if not math.isfinite(scalars.get("gradient_norm", 0.0)):
            self._on_skipped(components, part, scalars)
            return "its update was skipped"
        if not self.abandoned:
            self._skipped = 0
            self._telemetry.training.on_update(
                scalars,
                lag_updates=version - part.version,
                step_lag=None if part.step_version is None else version - part.step_version,
                step_s=time.perf_counter() - started,
                trained_frames=fresh * components.spec.action_repeat,
            )
        return ""

    def _resync(self, components: LearnerComponents) -> bool:
        """Return whether a peer's parameters have replaced those of this learner."""
        if self.exchange is None or not self.exchange.resync_if_left_behind():
            return False
        self.publish(components, self._telemetry.counters.updates)
        return True

    def publish(self, components: LearnerComponents, version: int) -> None:
        """Publish the parameters that act from now on. Between two updates only.

        Args:
            components: hold the trainer.
            version: number of updates that made the parameters.
        """
        acting = self.exchange.acting_params() if self.exchange is not None else None
        self._store.publish(acting or components.trainer.params(), version)

    def _update(self, components: LearnerComponents, batch: TrainingBatch) -> dict[str, float]:
        """Make one update, and publish its parameters.

        Those of a skipped update keep their version: no number goes back, and policy lag counts
        changes only. They are published all the same, because peers may have been mixed in.
        """
        # The first update compiles, for as long as it takes.
        if not self._compiled:
            self._telemetry.phase = "compiling the training step"
        else:
            self.step_since = time.perf_counter()
        with self._telemetry.busy["training"], self._failing_for_hosts():
            outputs = components.source.train_step(batch, self.exchange)
            numbers = components.trainer.fetch(outputs)
            scalars = {name: float(value) for name, value in numbers.items() if not value.ndim}
            applied = math.isfinite(scalars["gradient_norm"])
            version = self._telemetry.counters.updates + applied
            self.publish(components, version)
            components.source.on_trained(batch, numbers)
        if not self._compiled:
            self._telemetry.phase = "training"
        self._compiled, self.step_since = True, None
        return scalars

    @contextmanager
    def _failing_for_hosts(self) -> Iterator[None]:
        """Return the context of an update, which fails where another host is lost.

        Raises:
            SeedbedError: HOSTS_FAILED: the backend failed, and has not ended the process.
        """
        try:
            yield
        except RuntimeError as error:
            if self.hosts is None:
                raise
            self.step_since = None
            raise self.hosts.lost(error) from error

    def _on_skipped(
        self, components: LearnerComponents, batch: TrainingBatch, scalars: dict[str, float]
    ) -> None:
        """Count a skipped update, and keep its batch.

        Raises:
            SeedbedError: DIVERGED: it was one too many in a row.
        """
        counters = self._telemetry.counters
        counters.skipped_updates += 1
        self._skipped += 1
        what = (
            f"loss {scalars['loss']:g} and gradient norm {scalars['gradient_norm']:g} at update "
            f"{counters.updates + 1}, which was skipped"
        )
        name = f"update-{counters.updates + 1}-skipped-{counters.skipped_updates}"
        self._quarantine.keep(name, what, components.source.host_arrays(batch), batch.version)
        log.warning(
            "%s: the parameters stay as they were (%d in a row; learner.max_skipped_updates is %d)",
            what,
            self._skipped,
            self._max_skipped,
        )
        if self._skipped >= self._max_skipped:
            raise SeedbedError(
                ExitCode.DIVERGED,
                f"{self._skipped} updates in a row were skipped (learner.max_skipped_updates is "
                f"{self._max_skipped}), the last one with {what}: the checkpoint has the last good "
                f"parameters, and {self._quarantine.folder} the batches. If their numbers are "
                "sound, lower learner.optimizer.learning_rate or max_gradient_norm",
            )

    def _discard(self, components: LearnerComponents, steps: int, reason: str) -> None:
        """Count the steps of a batch that were never trained on, and release it."""
        # Replay keeps the sequences of a batch, whose frames are accounted for by inserting them.
        if not components.agent.trains_from_replay:
            frames = steps * components.spec.action_repeat
            self._telemetry.sessions.on_discarded(frames, reason)
        self._on_batch_done()

    def _warn_of_another_run(self, batch: TrainingBatch, updates: int) -> None:
        """Warn once of sequences that are newer than this run: replay kept those of another."""
        if self._warned or batch.keys is None or not (batch.version > updates).any():
            return
        self._warned = True
        log.warning(
            "replay holds sequences of another run (made at update %d, and this run is at "
            "update %d): their recurrent states and priorities are of its network. For a fresh "
            "start name another directory, or delete what is there",
            int(np.max(batch.version)),
            updates,
        )
