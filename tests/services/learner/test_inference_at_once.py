"""Short batches are computed in the thread that submits their last request."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from seedbed.services.learner.inference import thread as inference_thread
from seedbed.services.learner.sessions.batcher import AtOnce, Batcher, Request
from tests.services.learner.test_batcher import request
from tests.services.learner.test_inference_in_flight import DEADLINE_S, Rig, actions
from tests.support.waiting import wait_for


class Computed(AtOnce):
    """Keeps what it was given; every batch is short."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.batches: list[list[Request]] = []
        self.during: Any = lambda: None

    def is_short(self, sessions: int, num_envs: int) -> bool:
        self.asked.append((sessions, num_envs))
        return True

    def compute(self, batch: list[Request]) -> None:
        self.batches.append(batch)
        self.during()


def batcher_at_once(target: int, sessions: int, max_batch: int = 64) -> tuple[Batcher, Computed]:
    batcher, computed = Batcher(target, max_batch, 1000.0), Computed()
    batcher.set_connected(sessions, 4 * sessions)
    batcher.at_once = computed
    return batcher, computed


def test_a_batch_is_computed_once_it_is_due() -> None:
    batcher, computed = batcher_at_once(8, sessions=9)
    first, second, third = request(4), request(4), request(4)
    batcher.submit(first)
    assert computed.batches == []
    batcher.submit(second)
    assert computed.batches == [[first, second]]
    assert computed.asked == [(9, 8)]
    batcher.submit(third)
    assert batcher.depth == 1, "those that were computed are waited for again"


def test_nothing_is_computed_beside_a_batch_in_flight() -> None:
    batcher, computed = batcher_at_once(4, sessions=2)
    batcher.at_once = None
    first, second = request(4), request(4)
    batcher.submit(first)
    assert batcher.take(0) == [first]
    batcher.at_once = computed
    batcher.submit(second)
    assert computed.batches == []
    assert batcher.take(0) == [second]
    for batch in ([first], [second]):
        batcher.on_done(batch)
    batcher.submit(first)
    assert computed.batches == [[first]]


def test_nothing_is_computed_while_sessions_wait_for_room_together() -> None:
    batcher, computed = batcher_at_once(4, sessions=2)
    batcher.pause()
    one = request(4)
    batcher.submit(one)
    assert computed.batches == []
    assert batcher.take(0) == [one]


def test_nothing_is_computed_once_the_learner_ends() -> None:
    batcher, computed = batcher_at_once(4, sessions=1)
    batcher.close()
    batcher.submit(request(4))
    assert computed.batches == []


def test_the_inference_thread_takes_nothing_meanwhile() -> None:
    batcher, computed = batcher_at_once(4, sessions=3, max_batch=4)
    taken: list[list[Request]] = []
    taker = threading.Thread(target=lambda: taken.append(batcher.take(1000.0)), daemon=True)
    first, second = request(3), request(4)
    batcher.set_connected(9, 99)
    batcher.submit(first)

    def during() -> None:
        taker.start()
        taker.join(0.05)  # a batch that is wrongly there takes no longer
        assert taker.is_alive()

    computed.during = during
    batcher.submit(second)  # seven are more than a batch has
    assert computed.batches == [[first]]
    taker.join(DEADLINE_S)
    assert taken == [[second]]


def test_a_long_batch_and_those_of_many_sessions_are_not_short(tmp_path: Any) -> None:
    rig = Rig(tmp_path, 1, sessions=2)
    alone_s, two_s = (inference_thread._SHORT_S[sessions] for sessions in (1, 2))
    rig.thread._run_s = {4: alone_s, 5: two_s, 6: math.inf, 8: 2 * alone_s}
    assert two_s < alone_s
    assert rig.thread.is_short(1, 4)
    assert not rig.thread.is_short(2, 4)
    assert rig.thread.is_short(2, 5)
    assert not rig.thread.is_short(3, 5)
    assert not rig.thread.is_short(1, 6), "it has never run, and may compile"
    assert not rig.thread.is_short(1, 7)
    assert not rig.thread.is_short(1, 8)
    rig.end()


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_policy_computes_where_the_request_is_made(
    in_flight: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_thread, "_SHORT_S", {2: DEADLINE_S})
    rig = Rig(tmp_path, in_flight, sessions=2)
    threads: list[int] = []
    dispatch = rig.device.dispatch

    def note(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return dispatch(*arguments)

    rig.device.dispatch = note  # type: ignore[method-assign]
    rig.device.may_dispatch.set()
    rig.device.may_finish.release(3)
    for slot in (1, 2, 3):
        rig.submit(slot)
        rig.wait(rig.answered)
        # Until it is done with the batch, the thread has it in flight.
        wait_for(lambda: not rig.batcher._in_flight, "the thread is done with it")
    rig.end()
    here, thread = threading.get_ident(), rig._runner.ident
    assert threads == ([thread, here, here] if in_flight == 1 else [thread] * 3)
    assert actions(rig.sent) == [1, 2, 3]
    assert rig.thread.batch_since is None


def test_a_failure_there_ends_the_thread(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_thread, "_SHORT_S", {2: DEADLINE_S})
    rig = Rig(tmp_path, 1, sessions=2)
    rig.device.may_dispatch.set()
    rig.device.may_finish.release(2)
    rig.submit(1)
    rig.wait(rig.answered)
    wait_for(lambda: not rig.batcher._in_flight, "the thread is done with it")
    rig.device.fails = True
    failed = rig.submit(2)
    assert failed.action is None
    assert rig.failure.wait(DEADLINE_S)
