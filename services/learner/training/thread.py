"""Updates the parameters and publishes them."""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbed.gossip.exchange import ParameterExchange, ShuttingDown
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents, ParameterStore
from seedbed.services.learner.training.prefetch import PrefetchThread
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.telemetry import Telemetry

if TYPE_CHECKING:
    from seedbed.services.learner.training.fused_replay import FusedReplay

log = logging.getLogger(__name__)


class TrainingThread:
    """Updates the parameters and publishes them; hands out the state for checkpoints."""

    def __init__(
        self,
        store: ParameterStore,
        prefetch: PrefetchThread,
        telemetry: Telemetry,
        passes: int = 1,
        frozen: bool = False,
    ) -> None:
        self._passes = passes
        self._store = store
        self._prefetch = prefetch
        self._telemetry = telemetry
        self._frozen = frozen
        self._wanted: queue.Queue[Future[dict[str, NDArray[Any]]]] = queue.Queue()
        self._warned = False  # of another run's sequences
        self.exchange: ParameterExchange | None = None  # with peers, where there are any
        self._compiled = False
        self.step_since: float | None = None  # when the step at work began; None while compiling
        self.observers: list[Callable[[TrainingBatch], None]] = []  # for tests and `debug`
        self.after: list[Callable[[], None]] = []  # once a batch's parameters are published

    def request_state(self) -> Future[dict[str, NDArray[Any]]]:
        """The trainer's state between two steps, once the thread comes to it."""
        future: Future[dict[str, NDArray[Any]]] = Future()
        self._wanted.put(future)
        return future

    def give_states(self, built: LearnerComponents) -> None:
        """Answer what `request_state` asked. Between two steps only."""
        while not self._wanted.empty():
            self._wanted.get_nowait().set_result(built.trainer.state())

    def run(self, built: LearnerComponents, stopping: threading.Event) -> None:
        """Until `stopping`; then gives the states that were asked for, and ends."""
        experience = built.experience
        while not stopping.is_set():
            self.give_states(built)
            if experience is not None and not isinstance(experience, ReplaySource):
                if experience.wait_for_batch(POLL_S):
                    self._train_fused(built, experience)
                continue
            try:
                batch, arrays = self._prefetch.ready.get(timeout=POLL_S)
            except queue.Empty:
                continue
            try:
                self.train(built, batch, arrays)
            except ShuttingDown:
                self._discard(built, batch, "the learner stopped")
        self.give_states(built)

    def train(self, built: LearnerComponents, batch: TrainingBatch, arrays: Any) -> None:
        """`learner.epochs_per_batch` updates with a batch, whose `arrays` are on the device."""
        for observe in self.observers:
            observe(batch)
        self._warn_of_another_run(batch)
        if self.exchange is not None and self.exchange.resync_if_left_behind():
            self._store.publish(built.trainer.params(), self._telemetry.counters.updates)
            if getattr(built.agent, "synchronous", False):
                # No row of it was acted by these parameters, and it trains on no other.
                self._discard(built, batch, "its learner was left out by its peers")
                return
        for number in range(self._passes):
            version = self._telemetry.counters.updates
            started = time.perf_counter()
            scalars = {} if self._frozen else self._step(built, arrays, batch.keys, version)
            self._telemetry.training.on_update(
                scalars,
                lag_updates=version - batch.version,
                step_s=time.perf_counter() - started,
                # For the accounts a batch is trained on once, however many passes it makes.
                trained_frames=batch.steps * built.spec.action_repeat if number == 0 else 0,
            )
        self._tell()

    def _tell(self) -> None:
        for tell in self.after:
            tell()

    def _discard(self, built: LearnerComponents, batch: TrainingBatch, reason: str) -> None:
        self._telemetry.sessions.on_discarded(batch.steps * built.spec.action_repeat, reason)
        self._tell()

    def _warn_of_another_run(self, batch: TrainingBatch) -> None:
        """Warn of sequences that another run has acted, in files or shards that were kept."""
        updates = self._telemetry.counters.updates
        if not self._warned and batch.keys is not None and (batch.version > updates).any():
            self._warned = True
            log.warning(
                "replay holds sequences of another run (made after %d updates, and this run has "
                "made %d): their recurrent states and priorities are of its network. For a fresh "
                "start name another directory, or delete what is there",
                *(int(batch.version.max()), updates),
            )

    def _train_fused(self, built: LearnerComponents, experience: FusedReplay) -> None:
        version = self._telemetry.counters.updates
        started = time.perf_counter()
        with self._at_work():
            outputs = experience.step()
            if self.exchange is not None:
                self.exchange.after_update()
            lag = version - np.asarray(built.backend.to_host(outputs.pop("version")), np.float64)
            scalars = self._publish(built, outputs, version)
        steps = experience.home.spec.steps * experience.batch_size * scalars.get("unmasked", 1.0)
        self._telemetry.training.on_update(
            scalars,
            lag_updates=lag,
            step_s=time.perf_counter() - started,
            trained_frames=round(steps) * built.spec.action_repeat,
        )

    def _step(
        self, built: LearnerComponents, arrays: Any, keys: NDArray[np.int64] | None, version: int
    ) -> dict[str, float]:
        with self._at_work():
            outputs = (self.exchange or built.trainer).step(arrays)
            priority = outputs.pop("priority", None)
            scalars = self._publish(built, outputs, version)
            if isinstance(built.experience, ReplaySource):
                assert keys is not None
                built.experience.give_back(keys, built.backend.to_host(priority))
            return scalars

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Tell telemetry and the watchdog. The first step compiles."""
        if not self._compiled:
            self._telemetry.set_phase("compiling the training step")
        else:
            self.step_since = time.perf_counter()
        with self._telemetry.busy["training"]:
            yield
        if not self._compiled:
            self._telemetry.set_phase("training")
        self._compiled, self.step_since = True, None

    def _publish(
        self, built: LearnerComponents, outputs: dict[str, Any], version: int
    ) -> dict[str, float]:
        """Check an update's numbers, and let acting use its parameters."""
        scalars = {name: float(built.backend.to_host(x)) for name, x in outputs.items()}
        bad = [name for name in ("loss", "gradient_norm") if not math.isfinite(scalars[name])]
        if bad:
            raise SeedbedError(
                ExitCode.DIVERGED,
                f"{bad[0]} is {scalars[bad[0]]} at update {version + 1}: lower "
                "learner.optimizer.learning_rate or max_gradient_norm; the newest checkpoint is "
                "from before",
            )
        self._store.publish(built.trainer.params(), version + 1)
        return scalars
