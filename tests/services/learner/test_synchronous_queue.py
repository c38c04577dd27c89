"""The rounds of synchronous agents: who is in one, who is waited for, what becomes of others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.services.learner.unrolls.synchronous_queue import STRAGGLER, SynchronousUnrollQueue
from seedbed.services.learner.unrolls.unroll import SessionUnroll
from seedbed.spec import FIRST
from tests.support.null_model import NullLearner, null_learner
from tests.support.raw_wire import Refused, Stream, hello, step, stream
from tests.support.waiting import wait_for

LONG_S = 1000.0
SHORT_S = 0.05
DEADLINE_S = 30.0


def block(environments: int, number: int = 1, version: int | list[int] = 0) -> SessionUnroll:
    """Of two steps, with a stack of two frames; `number` tells it from others."""
    e = environments
    return SessionUnroll(
        observation=np.full((4, e, 2), number),
        flags=np.zeros((4, e), np.uint8),
        reward=np.full((3, e), number, np.float32),
        action=np.full((2, e), number, np.int32),
        previous_action=np.full(e, number, np.int32),
        behaviour={"logits": np.full((2, e, 3), number, np.float32)},
        version=np.zeros(2, np.int64) + version,
        state=np.full((e, 5), number, np.float32),
    )


class Rounds(SynchronousUnrollQueue):
    """With a version that the test sets."""

    def __init__(self, columns: int, deadline_s: float = LONG_S) -> None:
        super().__init__(columns, deadline_s, lambda: self.newest)
        self.newest = 0

    def train(self) -> None:
        self.newest += 1
        self.on_trained()


class Putting:
    """A session that hands in a block."""

    def __init__(self, queue: SynchronousUnrollQueue, item: SessionUnroll) -> None:
        self.lost: list[str] = []
        self.task = asyncio.create_task(queue.put(item, self.lost.append))

    async def ended(self) -> float:
        async with asyncio.timeout(DEADLINE_S):
            return await self.task

    async def cancelled(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def turns() -> None:
    """All that can happen without anybody else happens."""
    for _ in range(5):
        await asyncio.sleep(0)


def play(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 2 * DEADLINE_S))


def test_a_round_is_everybody_and_nobody_goes_on_before_it_is_trained() -> None:
    async def test() -> None:
        queue = Rounds(5)
        one = Putting(queue, block(2, 1))
        await turns()
        assert queue.unrolls == 2
        assert queue.get(0) is None, "three columns are missing"
        other = Putting(queue, block(3, 2))
        await turns()
        taken = queue.get(0)
        assert taken.action.tolist() == [[1, 1, 2, 2, 2]] * 2
        assert (taken.environments, taken.steps, queue.unrolls) == (5, 10, 0)
        await turns()
        assert not one.task.done()
        assert not other.task.done()
        queue.train()
        await one.ended()
        await other.ended()
        assert one.lost == other.lost == []

    play(test)


def test_a_block_of_everybody_is_not_copied() -> None:
    async def test() -> None:
        queue, whole = Rounds(5), block(5)
        session = Putting(queue, whole)
        await turns()
        assert queue.get(0) is whole
        queue.train()
        await session.ended()

    play(test)


def test_who_is_missing_is_masked_after_the_deadline_and_then_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        queue = Rounds(5, SHORT_S)
        session = Putting(queue, block(2, 7))
        await turns()
        taken = queue.get(DEADLINE_S)
        assert taken.environments == 5
        assert taken.steps == 4, "two environments of two steps"
        assert (taken.flags[:, 2:] == FIRST).all()
        assert not taken.flags[:, :2].any()
        assert (taken.previous_action == [7, 7, -1, -1, -1]).all()
        arrays = (taken.observation, taken.reward, taken.action, taken.behaviour["logits"])
        for array in arrays:
            assert (array[:, :2] == 7).all()
            assert not array[:, 2:].any()
        assert (taken.state[:2] == 7).all()
        assert not taken.state[2:].any()
        assert caplog.messages == [
            "a round goes without 3 of 5 environments: they did not come within "
            "learner.straggler_timeout_s 0.05"
        ]
        queue.train()
        await session.ended()
        # The next one does not wait for the three.
        again = Putting(queue, block(2, 7, version=1))
        await turns()
        assert queue.get(0) is not None
        queue.train()
        await again.ended()

    with caplog.at_level(logging.WARNING):
        play(test)
    assert len(caplog.messages) == 1


def test_who_was_missing_is_late_and_then_waited_for_again() -> None:
    async def test() -> None:
        queue = Rounds(5, SHORT_S)
        present = Putting(queue, block(2))
        await turns()
        assert queue.get(DEADLINE_S) is not None
        queue.train()
        await present.ended()
        queue._straggler_timeout_s = LONG_S
        # It began with the old parameters and ended with the new ones.
        late = Putting(queue, block(3, version=[0, 1]))
        await late.ended()
        assert late.lost == [STRAGGLER]
        present = Putting(queue, block(2, version=1))
        await turns()
        assert queue.get(0) is None, "the others are waited for"
        back = Putting(queue, block(3, version=1))
        await turns()
        assert queue.get(0).steps == 10
        queue.train()
        await present.ended()
        await back.ended()
        assert back.lost == present.lost == []

    play(test)


def test_who_comes_while_a_round_is_trained_waits_for_its_end() -> None:
    """Answered at once, its next block would be acted by two versions, and late once more."""

    async def test() -> None:
        queue = Rounds(5, SHORT_S)
        present = Putting(queue, block(2))
        await turns()
        assert queue.get(DEADLINE_S) is not None
        late = Putting(queue, block(3))
        await turns()
        assert late.lost == [STRAGGLER]
        assert not late.task.done()
        assert queue.unrolls == 0
        assert queue.get(0) is None
        queue.train()
        await late.ended()
        await present.ended()

    play(test)


def test_more_than_a_batch_are_never_waited_for() -> None:
    """A session ends while its round is trained on, and its heir is there before that is done."""

    async def test() -> None:
        queue = Rounds(5)
        stays, ends = Putting(queue, block(2)), Putting(queue, block(3))
        await turns()
        assert queue.get(0) is not None
        await ends.cancelled()
        heir = Putting(queue, block(3))
        await turns()
        assert heir.lost == [STRAGGLER]
        queue.train()
        await stays.ended()
        await heir.ended()
        again = [Putting(queue, block(e, version=1)) for e in (2, 3)]
        await turns()
        assert queue.get(0) is not None
        queue.train()
        for session in again:
            await session.ended()

    play(test)


def test_a_frozen_learner_has_rounds_too() -> None:
    async def test() -> None:
        queue = Rounds(2)
        for _ in range(3):
            session = Putting(queue, block(2))
            await turns()
            assert queue.get(0) is not None
            queue.on_trained()  # and the version stays
            await session.ended()
            assert session.lost == []

    play(test)


def test_a_session_that_ends_before_its_round_is_taken_back() -> None:
    async def test() -> None:
        queue = Rounds(5)
        one, other = Putting(queue, block(2, 1)), Putting(queue, block(3, 2))
        await turns()
        await one.cancelled()
        assert one.lost == ["session ended"]
        assert queue.unrolls == 3
        heir = Putting(queue, block(2, 3))
        await turns()
        assert queue.get(0).action[0].tolist() == [2, 2, 2, 3, 3]
        queue.train()
        await heir.ended()
        await other.ended()

    play(test)


def test_the_deadline_begins_with_a_rounds_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr("seedbed.services.learner.unrolls.synchronous_queue.time", clock)

    async def test() -> None:
        queue = Rounds(5)
        gone = Putting(queue, block(2))
        await turns()
        await gone.cancelled()
        now[0] += LONG_S
        assert queue.get(0) is None, "nobody is there: nothing is late"
        first = Putting(queue, block(2))
        await turns()
        now[0] += LONG_S - 1
        second = Putting(queue, block(1))
        await turns()
        assert queue.get(0) is None, "the first one's deadline has not passed"
        now[0] += 1
        assert queue.get(0) is not None
        queue.train()
        await first.ended()
        await second.ended()

    play(test)


def test_a_session_that_ends_while_its_round_is_trained_loses_nothing() -> None:
    async def test() -> None:
        queue = Rounds(2)
        session = Putting(queue, block(2))
        await turns()
        assert queue.get(0) is not None
        await session.cancelled()
        assert session.lost == []
        queue.train()
        assert queue.close() == 0

    play(test)


def test_a_release_wakes_nobody_of_the_next_round() -> None:
    """Sessions are woken in a later turn of the event loop, when others may have come."""

    async def test() -> None:
        queue = Rounds(3, SHORT_S)
        one = Putting(queue, block(2))
        await turns()
        assert queue.get(DEADLINE_S) is not None
        queue._straggler_timeout_s = LONG_S
        next_one = Putting(queue, block(1, version=1))  # puts before `one` is woken
        queue.train()
        await one.ended()
        await turns()
        assert not next_one.task.done()
        assert queue.unrolls == 1
        await next_one.cancelled()

    play(test)


@pytest.mark.parametrize("is_out", [False, True])
def test_close_lets_everybody_go_and_counts_what_is_dropped(is_out: bool) -> None:
    async def test() -> None:
        queue = Rounds(2)
        waits = Putting(queue, block(2 if is_out else 1))
        await turns()
        if is_out:
            assert queue.get(0) is not None
        assert queue.close() == (0 if is_out else 2)
        await waits.ended()
        assert waits.lost == [], "the queue has counted it"
        assert queue.try_put(block(1))
        assert queue.close() == (2 if is_out else 4)
        assert queue.get(LONG_S) is None

    play(test)


def test_a_waiting_getter_sees_a_round_that_is_complete() -> None:
    async def test() -> None:
        queue, got = Rounds(3), []
        getter = threading.Thread(target=lambda: got.append(queue.get(LONG_S)), daemon=True)
        getter.start()
        sessions = [Putting(queue, block(e)) for e in (1, 2)]
        await asyncio.to_thread(getter.join, DEADLINE_S)
        assert got[0].environments == 3
        queue.train()
        for session in sessions:
            await session.ended()

    play(test)


# --- over the wire, without a model ------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner of four environments and blocks of four steps."""

    @contextlib.contextmanager
    def make(*overrides: str, **options: Any) -> Iterator[NullLearner]:
        given = ("agent=a2c", "actor.processes=0", *overrides)
        with null_learner(tmp_path, monkeypatch, *given, **options) as learner:
            yield learner
        counters = learner.counters
        assert counters.env_frames == counters.trained_frames + counters.discarded_frames

    return make


def hand_in(actor: Stream, steps: int = 4) -> None:
    """Play up to a block's end, and send the row that ends it."""
    actor.play(steps)
    actor.send(step(actor.sequence, actor.environments))


def answered(actor: Stream) -> None:
    message = actor.read()
    assert message is not None
    assert message.actions.sequence == actor.sequence
    actor.sequence += 1


def test_a_session_is_answered_when_the_others_are_there(bare: Any) -> None:
    """And inference waits for nobody who waits for a round."""
    with (
        bare("learner.inference.max_wait_ms=60000") as learner,
        stream(learner.address, 1) as one,
        stream(learner.address, 3) as three,
    ):
        learner.servicer.batchers.all[0]._target = 4  # full only with both
        for actor in (one, three):
            actor.send(step(0, actor.environments))
        for actor in (one, three):
            answered(actor)
        for _ in range(3):
            for actor in (one, three):
                actor.send(step(actor.sequence, actor.environments))
            for actor in (one, three):
                answered(actor)
        one.send(step(4, 1))
        wait_for(lambda: learner.servicer.batchers.all[0]._paused == 1, "it waits for its round")
        assert learner.counters.updates == 0
        three.send(step(4, 3))
        answered(one)
        answered(three)
        assert learner.counters.updates == 1
        assert learner.counters.trained_frames == 4 * 4
        assert learner.servicer.batchers.all[0]._paused == 0


def test_inference_does_not_wait_for_those_who_wait_for_a_round(bare: Any) -> None:
    with (
        bare("learner.inference.max_wait_ms=60000") as learner,
        stream(learner.address, 3) as three,
    ):
        hand_in(three)  # alone it is everyone
        wait_for(lambda: learner.servicer.batchers.all[0]._paused == 1, "it waits for its round")
        learner.servicer.batchers.all[0]._target = 4
        with stream(learner.address, 1) as one:
            hand_in(one)
            answered(one)
            answered(three)


def test_who_waits_is_told_for_whom(bare: Any) -> None:
    with bare("learner.notice_interval_s=0.05") as learner, stream(learner.address, 3) as three:
        hand_in(three)
        message = three.read()
        assert message is not None
        assert message.notice.reason == "the round waits for 1 environment"


def test_more_environments_than_a_batch_has(bare: Any) -> None:
    with bare() as learner, stream(learner.address, 3):
        with Stream(learner.address) as late:
            late.begin(hello(2))
            with pytest.raises(Refused) as refusal:
                late.read()
        assert refusal.value.error is not None
        assert "at most 1 environment (4 slots in all)" in refusal.value.error.expected
        assert refusal.value.error.received == "2 environments"
        assert "raise learner.batch_size" in refusal.value.error.advice


def test_a_session_that_leaves_while_it_waits_for_its_round(bare: Any) -> None:
    with bare() as learner:
        with stream(learner.address, 3) as leaves:
            hand_in(leaves)
            wait_for(lambda: learner.queue.unrolls == 3, "its block is there")
        wait_for(lambda: learner.queue.unrolls == 0, "its block is taken back")
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "it is gone")
        assert learner.servicer.batchers.all[0]._paused == 0
        assert learner.telemetry.sessions.discarded_by_reason == {"session ended": 12}
        with stream(learner.address, 4) as whole:
            whole.play(9)
        assert learner.counters.trained_frames == 2 * 16


def test_a_session_that_leaves_while_its_round_is_trained(bare: Any) -> None:
    with bare() as learner:
        training, go = threading.Event(), threading.Event()
        learner.training.observers += [lambda _: training.set(), lambda _: go.wait(30)]
        with stream(learner.address, 4) as leaves:
            hand_in(leaves)
            assert training.wait(30)
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "it is gone")
        go.set()
        wait_for(lambda: learner.counters.trained_frames == 16, "its block is trained on")
        assert learner.counters.discarded_frames == 0


@pytest.mark.slow
def test_the_end_comes_to_those_who_wait_for_a_round(bare: Any) -> None:
    with (
        bare("stop.env_frames=20") as learner,
        stream(learner.address, 3) as waits,
        stream(learner.address, 1) as idle,
    ):
        idle.play(1)
        hand_in(waits)
        wait_for(lambda: learner.queue.unrolls == 3, "its block is there")
        learner.counters.updates = 1  # frames do not end a run before its first update
        learner.counters.env_frames += 8
        message = waits.read()
        assert message is not None
        assert message.finished.reason.startswith("stop.env_frames")
        assert learner.ended.wait(30)
        learner.counters.env_frames -= 8  # not steps of anybody


def test_without_actors_it_is_idle(bare: Any) -> None:
    with bare("learner.straggler_timeout_s=0.01") as learner:
        with stream(learner.address, 2) as actor:
            actor.play(9)
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "it is gone")
        assert learner.counters.trained_frames == 2 * 8
        updates = learner.counters.updates
        assert learner.queue.get(0.1) is None
        assert learner.counters.updates == updates
