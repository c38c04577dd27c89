"""Two inference batches in flight: the next one is dispatched before the actions are read."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

from seedbed.agents.inference_step import InferenceOutputs
from seedbed.config import parse_experiment
from seedbed.services.learner.components import ParameterStore
from seedbed.services.learner.inference.thread import InferenceThread
from seedbed.services.learner.sessions.batcher import Batcher, Request
from seedbed.spec import StepInputs
from seedbed.telemetry import Counters, Telemetry

DEADLINE_S = 30.0
EXPERIMENT = "{name: x, environment: {id: CartPole-v1}, agent: vtrace}"


class Device:
    """A policy whose batches are done when the test says so; an action is the slot's number."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.may_finish = threading.Semaphore(0)
        self.may_dispatch, self.computed = threading.Event(), threading.Event()
        self.computed.set()
        self.dispatched = threading.Semaphore(0)
        self.events: list[str] = []
        self.fails = False

    def dispatch(self, _: Any, inputs: list[StepInputs]) -> Any:
        slots = np.concatenate([step.slots for step in inputs])
        self.events.append(f"dispatch {slots.tolist()}")
        self.dispatched.release()
        assert self.may_dispatch.wait(DEADLINE_S)
        return Batch(self, slots)


class Batch:
    def __init__(self, device: Device, slots: np.ndarray) -> None:
        self.device, self.slots = device, slots

    def ready(self) -> bool:
        return self.device.computed.is_set()

    def result(self) -> InferenceOutputs:
        self.device.events.append(f"read {self.slots.tolist()}")
        assert self.device.may_finish.acquire(timeout=DEADLINE_S)
        if self.device.fails:
            raise RuntimeError("the device is lost")
        return InferenceOutputs(self.slots, {}, len(self.slots), np.zeros((len(self.slots), 0)))


class Rig:
    def __init__(self, tmp_path: Any, in_flight: int, sessions: int) -> None:
        self.device = Device(in_flight)
        self.batcher = Batcher(1, 1, 1000.0)  # a request is a batch
        self.batcher.set_connected(sessions, sessions)
        self.sent: list[Request] = []
        self.answered = threading.Semaphore(0)
        store = ParameterStore()
        store.publish([], 3)
        telemetry = Telemetry(parse_experiment(EXPERIMENT), tmp_path, Counters())
        self.thread = InferenceThread(self.batcher, store, telemetry, self._send)
        # Sizes that have run already, or the thread would drain before it may compile.
        self.thread._run_s = dict.fromkeys(range(9), math.inf)
        self.stopping, self.failure = threading.Event(), threading.Event()
        components: Any = type("Components", (), {"inference": [self.device]})
        self._runner = threading.Thread(target=self._run, args=(components,), daemon=True)
        self._runner.start()

    def _run(self, components: Any) -> None:
        try:
            self.thread.run(components, self.stopping)
        except RuntimeError:
            self.failure.set()

    def _send(self, batch: list[Request]) -> None:
        self.sent += batch
        self.answered.release()

    def submit(self, slot: int) -> Request:
        slots, ones = np.array([slot], np.int32), np.zeros(1)
        inputs = StepInputs(slots, ones, ones, ones, ones)
        made = Request(inputs, 1, False, lambda *_: None, lambda: None)
        self.batcher.submit(made)
        return made

    def wait(self, semaphore: threading.Semaphore) -> None:
        assert semaphore.acquire(timeout=DEADLINE_S), self.device.events

    def end(self) -> None:
        self.stopping.set()
        self._runner.join(DEADLINE_S)
        assert not self._runner.is_alive()


def actions(batch: list[Request]) -> list[int]:
    return [int(np.frombuffer(request.action or b"", np.int32)[0]) for request in batch]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_the_next_batch_is_dispatched_before_the_actions_are_read(
    tmp_path: Any, in_flight: int
) -> None:
    rig = Rig(tmp_path, in_flight, sessions=3)
    rig.submit(1)
    rig.wait(rig.device.dispatched)
    for slot in (2, 3):
        rig.submit(slot)  # both are there before the thread looks again, and each is a batch
    rig.device.may_finish.release(3)
    rig.device.may_dispatch.set()
    for _ in range(3):
        rig.wait(rig.answered)
    rig.end()
    read_late = ["dispatch [1]", "dispatch [2]", "read [1]", "dispatch [3]", "read [2]", "read [3]"]
    read_first = [f"{verb} [{slot}]" for slot in (1, 2, 3) for verb in ("dispatch", "read")]
    assert rig.device.events == (read_late if in_flight == 2 else read_first)
    assert actions(rig.sent) == [1, 2, 3]


def test_sessions_in_flight_are_not_waited_for() -> None:
    batcher = Batcher(0, 64, 1000.0)
    batcher.set_connected(3, 30)
    first, second = (Request(None, 15, False, None, None) for _ in range(2))  # type: ignore[arg-type]
    batcher.submit(first)
    assert batcher.take(0) == [first]
    third = Request(None, 1, False, None, None)  # type: ignore[arg-type]
    batcher.submit(third)
    assert batcher.take(1000, lambda: True) == [], "the other session could join"
    batcher.submit(Request(None, 1, False, None, None))  # type: ignore[arg-type]
    assert len(batcher.take(0)) == 2, "the one in flight cannot"
    batcher.on_done([first])
    batcher.submit(second)
    assert batcher.take(0) == [second]


def test_a_batch_that_comes_due_while_the_device_works_is_dispatched(tmp_path: Any) -> None:
    rig = Rig(tmp_path, 2, sessions=2)
    rig.device.may_dispatch.set()
    rig.device.computed.clear()
    rig.submit(1)
    rig.wait(rig.device.dispatched)
    # Nothing ends this wait but the next request.
    rig.submit(2)
    rig.wait(rig.device.dispatched)
    rig.device.computed.set()
    rig.device.may_finish.release(2)
    rig.wait(rig.answered)
    rig.end()
    assert rig.device.events == ["dispatch [1]", "dispatch [2]", "read [1]", "read [2]"]


def test_actions_do_not_wait_for_a_batch_that_is_not_due(tmp_path: Any) -> None:
    rig = Rig(tmp_path, 2, sessions=4)
    # A batch waits for the fourth session, for longer than the test.
    rig.batcher._target = rig.batcher._max_batch = 4
    rig.batcher.set_connected(1, 1)
    rig.device.may_dispatch.set()
    rig.device.computed.clear()
    rig.submit(1)
    rig.wait(rig.device.dispatched)
    rig.batcher.set_connected(4, 4)
    rig.submit(2)
    rig.device.may_finish.release(2)
    rig.device.computed.set()
    rig.wait(rig.answered)
    assert rig.device.events == ["dispatch [1]", "read [1]"]
    rig.stopping.set()
    rig.batcher.close()
    rig.end()


def test_what_is_in_flight_is_answered_at_the_end(tmp_path: Any) -> None:
    rig = Rig(tmp_path, 2, sessions=2)
    rig.submit(7)
    rig.wait(rig.device.dispatched)
    rig.stopping.set()
    rig.device.may_dispatch.set()
    rig.device.may_finish.release()
    rig.end()
    assert actions(rig.sent) == [7]
    assert rig.thread.batch_since is None


def test_a_failure_of_a_batch_in_flight_ends_the_thread(tmp_path: Any) -> None:
    rig = Rig(tmp_path, 2, sessions=2)
    rig.device.fails = True
    rig.device.may_dispatch.set()
    rig.submit(1)
    rig.device.may_finish.release(2)
    assert rig.failure.wait(DEADLINE_S)


def test_the_watchdog_sees_the_oldest_batch(tmp_path: Any) -> None:
    rig = Rig(tmp_path, 2, sessions=2)
    rig.submit(1)
    rig.wait(rig.device.dispatched)
    assert rig.thread.probe(1000) is None
    assert "worked on one batch" in (rig.thread.probe(-1) or "")
    rig.device.may_dispatch.set()
    rig.device.may_finish.release(2)
    rig.wait(rig.answered)
    rig.end()
