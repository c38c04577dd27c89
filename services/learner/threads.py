"""The three threads of section 3 of the SEED paper: inference, prefetch and training."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from services.common.exit_codes import ExitCode, SeedbedError
from services.learner.model import Built, ParameterStore
from services.learner.sessions.batcher import Batcher, Request
from services.learner.telemetry import Telemetry
from services.learner.unrolls.batches import BatchBuilder, TrainingBatch
from services.learner.unrolls.queue import UnrollQueue
from services.learner.unrolls.unroll import Block

if TYPE_CHECKING:
    from services.learner.inference import Answer, Policy

log = logging.getLogger("seedbed.learner")

POLL_S = 0.2  # how often a thread that waits for work looks whether it should stop


def answer_requests(answer: Answer, batch: list[Request], version: int) -> None:
    """Hand each request of a batch its rows of the answer."""
    state: NDArray[np.float32] | None = None
    start = 0
    for request in batch:
        rows = slice(start, start + request.rows)
        start += request.rows
        action = answer.action[rows]
        behaviour = {name: values[rows] for name, values in answer.behaviour.items()}
        row_state = None
        if request.session.needs_state:
            if state is None:
                state = answer.state_before()
            row_state = state[rows]
        request.session.answer(action, behaviour, version, row_state)
        request.action = action.tobytes()


class InferenceThread:
    """Takes batches, answers them with the newest parameters, delivers.

    Args:
        deliver: sends the answers of a batch.
    """

    def __init__(
        self,
        batcher: Batcher,
        store: ParameterStore,
        telemetry: Telemetry,
        deliver: Callable[[list[Request]], None],
    ) -> None:
        self._batcher = batcher
        self._store = store
        self._telemetry = telemetry
        self._deliver = deliver
        self.batch_since: float | None = None  # when the batch at work began; None on a first run
        self._seen: set[int] = set()  # rows of batches that have run; a first run may compile

    def run(self, policy: Policy, stopping: threading.Event) -> None:
        """Until `stopping`."""
        busy = self._telemetry.busy["inference"]
        while not stopping.is_set():
            batch = self._batcher.take(POLL_S)
            if not batch:
                continue
            started = time.perf_counter()
            rows = sum(request.rows for request in batch)
            self.batch_since = started if rows in self._seen else None
            params, version = self._store.newest()
            with busy:
                answer = policy.run(params, [request.session.row() for request in batch])
                answer_requests(answer, batch, version)
            self._deliver(batch)
            ended = time.perf_counter()
            self.batch_since = None
            self._seen.add(rows)
            self._telemetry.on_inference(
                rows=rows,
                padded_rows=answer.padded_rows,
                requests=len(batch),
                oldest_wait_s=started - batch[0].arrived,
                latencies_s=[ended - request.arrived for request in batch],
                run_s=ended - started,
            )


class PrefetchThread:
    """Builds the next training batch on the device while the current step runs."""

    def __init__(self, queue_: UnrollQueue, batch_size: int, telemetry: Telemetry) -> None:
        self._queue = queue_
        self._builder = BatchBuilder(batch_size)
        self._telemetry = telemetry
        self.ready: queue.Queue[tuple[TrainingBatch, Any]] = queue.Queue(maxsize=1)
        self._dropped_steps = 0  # in batches that training did not take before the end

    def run(self, built: Built, stopping: threading.Event) -> None:
        """Until `stopping`."""
        busy = self._telemetry.busy["prefetch"]
        while not stopping.is_set():
            block = self._queue.get(POLL_S)
            if block is None:
                continue
            with busy:
                on_device = self.build(built, block)
            for item in on_device:
                with busy.blocked("training is busy"):
                    self._hand_on(item, stopping)

    def build(self, built: Built, block: Block) -> list[tuple[TrainingBatch, Any]]:
        """The training batches that a block completes, on the host and on the device."""
        batches = self._builder.add(block)
        return [(batch, built.backend.to_device(batch.arrays)) for batch in batches]

    def _hand_on(self, item: tuple[TrainingBatch, Any], stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self.ready.put(item, timeout=POLL_S)
                return
            except queue.Full:
                continue
        self._dropped_steps += item[0].steps

    def pending_steps(self) -> int:
        """Steps that were collected and never trained on. After the thread has ended."""
        steps = self._builder.pending_steps + self._dropped_steps
        while not self.ready.empty():
            steps += self.ready.get_nowait()[0].steps
        return steps


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
        self._compiled = False
        self.step_since: float | None = None  # when the step at work began; None while compiling
        self.observers: list[Callable[[TrainingBatch], None]] = []  # for tests and `debug`

    def request_state(self) -> Future[dict[str, NDArray[Any]]]:
        """The trainer's state between two steps, once the thread comes to it."""
        future: Future[dict[str, NDArray[Any]]] = Future()
        self._wanted.put(future)
        return future

    def give_states(self, built: Built) -> None:
        """Answer what `request_state` asked. Between two steps only."""
        while not self._wanted.empty():
            self._wanted.get_nowait().set_result(built.trainer.state())

    def run(self, built: Built, stopping: threading.Event) -> None:
        """Until `stopping`; then gives the states that were asked for, and ends."""
        while not stopping.is_set():
            self.give_states(built)
            try:
                batch, arrays = self._prefetch.ready.get(timeout=POLL_S)
            except queue.Empty:
                continue
            self.train(built, batch, arrays)
        self.give_states(built)

    def train(self, built: Built, batch: TrainingBatch, arrays: Any) -> None:
        """`learner.passes` updates with a batch, whose `arrays` are on the device."""
        for observe in self.observers:
            observe(batch)
        for number in range(self._passes):
            version = self._telemetry.counters.updates
            started = time.perf_counter()
            scalars = {} if self._frozen else self._step(built, arrays, version)
            self._telemetry.on_update(
                scalars,
                lag_updates=version - batch.version,
                step_s=time.perf_counter() - started,
                # A frame is trained on once for the accounts, however often it is used.
                trained_frames=batch.steps * built.spec.action_repeat if number == 0 else 0,
            )

    def _step(self, built: Built, arrays: Any, version: int) -> dict[str, float]:
        if not self._compiled:
            self._telemetry.phase = "compiling the training step"
        else:
            self.step_since = time.perf_counter()
        with self._telemetry.busy["training"]:
            scalars = self._update(built, arrays, version)
        if not self._compiled:
            self._telemetry.phase = "training"
        self._compiled, self.step_since = True, None
        return scalars

    def _update(self, built: Built, arrays: Any, version: int) -> dict[str, float]:
        on_device = built.trainer.step(arrays)
        scalars = {name: float(built.backend.to_host(x)) for name, x in on_device.items()}
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
