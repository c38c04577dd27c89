"""Inference thread: takes batches of requests and runs the policy on them."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents, ParameterStore
from seedbed.services.learner.sessions.batcher import AtOnce, Batcher, Request
from seedbed.telemetry import BusyClock, Telemetry
from seedbed.types import Params

if TYPE_CHECKING:  # imports Keras
    from seedbed.agents.inference_step import InferenceOutputs, PendingOutputs, Policy


# By the number of sessions: the longest batch that is computed at once, since the way to this
# thread and back takes 0.1 ms. On that way the step of a second session may join the batch, which
# is worth more where a batch takes long; with more sessions it always is.
_SHORT_S = {1: 2e-3, 2: 5e-4}


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


@dataclass
class Flight:
    """A batch that is being computed.

    Attributes:
        batch: the requests.
        outputs: the outputs to come.
        version: the count of updates that made the parameters.
        started: `time.perf_counter()` of the dispatch.
    """

    batch: list[Request]
    outputs: "PendingOutputs"
    version: int
    started: float


def dispatch(
    policy: "Policy", batch: list[Request], newest: tuple[Params, int], clock: BusyClock
) -> Flight:
    """Start the policy on a batch.

    Args:
        policy: the policy.
        batch: the requests.
        newest: the parameters and their version.
        clock: the clock of this thread.
    """
    started = time.perf_counter()
    params, version = newest
    with clock:
        outputs = policy.dispatch(params, [request.inputs for request in batch])
    return Flight(batch, outputs, version, started)


def land(
    flight: Flight,
    telemetry: Telemetry,
    clock: BusyClock,
    send_actions: Callable[[list[Request]], None],
) -> tuple[int, float]:
    """Wait for the outputs of a batch, send the actions, and return environments and seconds.

    Args:
        flight: the batch.
        telemetry: receives times and sizes.
        clock: the clock of this thread.
        send_actions: sends the actions of a batch to its actors.
    """
    batch = flight.batch
    with clock:
        outputs = flight.outputs.result()
        split_outputs(outputs, batch, flight.version)
    send_actions(batch)
    ended = time.perf_counter()
    rows, run_s = len(outputs.action), ended - flight.started
    telemetry.inference.on_batch(
        rows=rows,
        padded_rows=outputs.padded_rows,
        oldest_wait_s=flight.started - batch[0].arrived,
        latencies_s=[ended - request.arrived for request in batch],
        run_s=run_s,
    )
    return rows, run_s


class InferenceThread(AtOnce):
    """Runs the policy on batches of requests, with the newest parameters.

    With more than one batch in flight, the next one is dispatched before the actions of the oldest
    are read, if it is due before they are computed. On a CPU, short batches are computed in the
    thread that submits them, while this thread has none.

    Args:
        batcher: the source of the batches.
        store: the source of the parameters.
        telemetry: receives times and sizes.
        send_actions: sends the actions of a batch to its actors.
        acting: number of the device that acts, from 0.
        may_leave_out: whether short batches may leave out this thread.

    Attributes:
        batch_since: `time.perf_counter()` when the oldest batch in flight began. None between
            batches, and in the first run of a size, which may compile.
    """

    def __init__(
        self,
        batcher: Batcher,
        store: ParameterStore,
        telemetry: Telemetry,
        send_actions: Callable[[list[Request]], None],
        acting: int = 0,
        may_leave_out: bool = True,
    ) -> None:
        self._acting, self._may_leave_out = acting, may_leave_out
        self._clock = telemetry.inference_clock(acting)
        self._batcher = batcher
        self._store = store
        self._telemetry = telemetry
        self._send_actions = send_actions
        self.batch_since: float | None = None
        # Seconds of the newest batch of a number of environments, whose first may compile.
        self._run_s: dict[int, float] = {}
        self._flights: deque[Flight] = deque()
        self._policy: Policy | None = None
        self._failure: BaseException | None = None  # of a batch in another thread

    def probe(self, limit_s: float) -> str | None:
        """Return why inference has made no progress for `limit_s`, or None. Any thread."""
        since = self.batch_since
        busy_s = time.perf_counter() - since if since is not None else 0.0
        if busy_s > limit_s:
            return f"inference has worked on one batch for {busy_s:.0f} s"
        waited_s = self._batcher.oldest_wait_s()
        if waited_s > limit_s and self._clock.state[0] == "idle":
            return f"inference took no batch for {waited_s:.0f} s with a request waiting"
        return None

    def run(self, components: LearnerComponents, stopping: threading.Event) -> None:
        """Run until `stopping` is set, and until the actions of the last batch are sent."""
        self._policy = policy = components.inference[self._acting]
        is_only = policy.in_flight == 1 and len(components.inference) == 1
        if is_only and self._may_leave_out:
            self._batcher.at_once = self
        while not stopping.is_set():
            if self._flights:
                with self._telemetry.busy["inference"]:
                    batch = self._batcher.take(POLL_S, self._flights[0].outputs.ready)
            else:
                batch = self._batcher.take(POLL_S)
            if self._failure is not None:
                raise self._failure
            if batch:
                self._dispatch(policy, batch)
            if self._flights and (not batch or len(self._flights) >= policy.in_flight):
                self._land_oldest()
            # Its inputs are views of unrolls, whose memory can be freed now.
            del batch
        while self._flights:
            self._land_oldest()

    def _dispatch(self, policy: "Policy", batch: list[Request]) -> None:
        num_envs = sum(request.num_envs for request in batch)
        compiled = num_envs in self._run_s
        while self._flights and not compiled:
            self._land_oldest()  # whose time would include that of compiling
        if compiled and not self._flights:
            self.batch_since = time.perf_counter()
        newest = self._store.newest(self._acting)
        self._flights.append(dispatch(policy, batch, newest, self._clock))
        self._run_s.setdefault(num_envs, math.inf)

    def _land_oldest(self) -> None:
        flight = self._flights[0]
        self._land(flight)
        self._flights.popleft()
        # The next one has the device from now on, or whoever computes once the batch is done.
        self.batch_since = time.perf_counter() if self._flights else None
        self._batcher.on_done(flight.batch)

    def _land(self, flight: Flight) -> None:
        rows, run_s = land(flight, self._telemetry, self._clock, self._send_actions)
        self._run_s[rows] = run_s

    # --- in the thread that submits --------------------------------------------------------

    @override
    def is_short(self, sessions: int, num_envs: int) -> bool:
        return self._run_s.get(num_envs, math.inf) <= _SHORT_S.get(sessions, 0.0)

    @override
    def compute(self, batch: list[Request]) -> None:
        assert self._policy is not None
        self.batch_since = time.perf_counter()
        try:
            newest = self._store.newest(self._acting)
            self._land(dispatch(self._policy, batch, newest, self._clock))
        except BaseException as error:  # which ends the learner, as in the other thread
            self._failure = error
        self.batch_since = None
