"""Takes batches of requests, answers them, delivers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import ParameterStore
from seedbed.services.learner.sessions.batcher import Batcher, Request
from seedbed.telemetry import Telemetry

if TYPE_CHECKING:
    from seedbed.agents.inference_step import Answer, Policy


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
