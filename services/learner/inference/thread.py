"""Inference thread: takes batches of requests and runs the policy on them."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents, ParameterStore
from seedbed.services.learner.sessions.batcher import Batcher, Request
from seedbed.telemetry import Telemetry

if TYPE_CHECKING:  # imports Keras
    from seedbed.agents.inference_step import InferenceOutputs, Policy


def split_outputs(outputs: "InferenceOutputs", batch: list[Request], version: int) -> None:
    """Give each request of a batch its part of the outputs.

    Args:
        outputs: the outputs of the batch, environments in the order of the requests.
        batch: the requests.
        version: the count of updates that made the parameters.
    """
    state: NDArray[np.float32] | None = None
    start = 0
    for request in batch:
        envs = slice(start, start + request.num_envs)
        start += request.num_envs
        action = outputs.action[envs]
        behaviour = {name: values[envs] for name, values in outputs.behaviour.items()}
        state_before = None
        if request.needs_state:
            if state is None:
                state = outputs.state_before()
            state_before = state[envs]
        request.set_outputs(action, behaviour, version, state_before)
        request.action = action.tobytes()


def run_batch(
    policy: "Policy",
    batch: list[Request],
    store: ParameterStore,
    telemetry: Telemetry,
    send_actions: Callable[[list[Request]], None],
) -> None:
    """Run the policy on a batch with the newest parameters, and send the actions."""
    started = time.perf_counter()
    params, version = store.newest()
    with telemetry.busy["inference"]:
        outputs = policy.run(params, [request.inputs for request in batch])
        split_outputs(outputs, batch, version)
    send_actions(batch)
    ended = time.perf_counter()
    telemetry.inference.on_batch(
        rows=len(outputs.action),
        padded_rows=outputs.padded_rows,
        oldest_wait_s=started - batch[0].arrived,
        latencies_s=[ended - request.arrived for request in batch],
        run_s=ended - started,
    )


class InferenceThread:
    """Runs the policy on batches of requests, with the newest parameters.

    Args:
        batcher: the source of the batches.
        store: the source of the parameters.
        telemetry: receives times and sizes.
        send_actions: sends the actions of a batch to its actors.

    Attributes:
        batch_since: `time.perf_counter()` when the present batch began. None between batches, and
            in the first run of a size, which may compile.
    """

    def __init__(
        self,
        batcher: Batcher,
        store: ParameterStore,
        telemetry: Telemetry,
        send_actions: Callable[[list[Request]], None],
    ) -> None:
        self._batcher = batcher
        self._store = store
        self._telemetry = telemetry
        self._send_actions = send_actions
        self.batch_since: float | None = None
        self._compiled: set[int] = set()  # environments of batches that have run

    def probe(self, limit_s: float) -> str | None:
        """Return why inference has made no progress for `limit_s`, or None. Any thread."""
        since = self.batch_since
        busy_s = time.perf_counter() - since if since is not None else 0.0
        if busy_s > limit_s:
            return f"inference has worked on one batch for {busy_s:.0f} s"
        waited_s = self._batcher.oldest_wait_s()
        if waited_s > limit_s and self._telemetry.busy["inference"].state[0] == "idle":
            return f"inference took no batch for {waited_s:.0f} s with a request waiting"
        return None

    def run(self, components: LearnerComponents, stopping: threading.Event) -> None:
        """Run until `stopping` is set."""
        while not stopping.is_set():
            batch = self._batcher.take(POLL_S)
            if not batch:
                continue
            num_envs = sum(request.num_envs for request in batch)
            self.batch_since = time.perf_counter() if num_envs in self._compiled else None
            run_batch(components.inference, batch, self._store, self._telemetry, self._send_actions)
            self.batch_since = None
            self._compiled.add(num_envs)
            # Its inputs are views of unrolls, whose memory can be freed now.
            del batch
