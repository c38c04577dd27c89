"""The bounded queue between sessions and training."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from seedbed.services.learner.unrolls.queue import PacedUnrollQueue, UnrollQueue
from seedbed.services.learner.unrolls.unroll import SessionUnroll

LONG_S = 1000.0
DEADLINE_S = 30.0


def block(environments: int, number: int = 0) -> SessionUnroll:
    """Of one step; `number` tells it from others."""
    return SessionUnroll(
        observation=np.full((2, environments), number),
        flags=np.zeros((2, environments), np.uint8),
        reward=np.zeros((2, environments), np.float32),
        action=np.zeros((1, environments), np.int32),
        previous_action=np.zeros(environments, np.int32),
        behaviour={},
        version=np.zeros(1, np.int64),
        state=np.zeros((environments, 0), np.float32),
    )


def test_first_in_first_out_and_bounded() -> None:
    queue = UnrollQueue(8)
    blocks = [block(4) for _ in range(3)]
    assert [queue.try_put(item) for item in blocks] == [True, True, False]
    assert queue.unrolls == 8
    assert queue.get(0) is blocks[0]
    assert queue.try_put(blocks[2])
    assert [queue.get(0), queue.get(0), queue.get(0)] == [*blocks[1:], None]
    assert queue.unrolls == 0


def test_a_block_larger_than_the_capacity_passes() -> None:
    """Or a group larger than a batch would wait for ever."""
    queue, large = UnrollQueue(8), block(100)
    assert queue.try_put(large)
    assert not queue.try_put(block(1))
    assert queue.get(0) is large
    assert queue.try_put(block(100))


def test_put_waits_for_room_and_keeps_everything() -> None:
    """Several sessions wait at once; a thread gets."""
    queue, got = UnrollQueue(6), []
    sessions, each = 5, 20

    async def session(number: int) -> None:
        for i in range(each):
            await queue.put(block(4, 1000 * number + i))

    async def play() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(session(number) for number in range(sessions)))

    def get() -> None:
        while len(got) < sessions * each:
            assert queue.unrolls < 6 + 4
            item = queue.get(DEADLINE_S)
            assert item is not None
            got.append(int(item.observation[0, 0]))

    taker = threading.Thread(target=get, daemon=True)
    taker.start()
    asyncio.run(play())
    taker.join(DEADLINE_S)
    assert not taker.is_alive()
    for number in range(sessions):  # each session's blocks in its order
        mine = [item for item in got if item // 1000 == number]
        assert mine == [1000 * number + i for i in range(each)]


def test_a_cancelled_put_leaves_nothing_and_holds_nobody_up() -> None:
    async def play() -> None:
        queue = UnrollQueue(4)
        first, second, third = block(4), block(4), block(4)
        await queue.put(first)
        waiting = [asyncio.create_task(queue.put(item)) for item in (second, third)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        assert queue.get(0) is first
        async with asyncio.timeout(DEADLINE_S):
            await waiting[1]
        assert queue.get(0) is third
        assert queue.get(0) is None

    asyncio.run(play())


def test_close_lets_both_sides_go_and_counts_what_is_dropped() -> None:
    async def play() -> None:
        queue = UnrollQueue(4)
        await queue.put(block(4))
        putting = asyncio.create_task(queue.put(block(3)))
        await asyncio.sleep(0)
        assert queue.close() == 4
        async with asyncio.timeout(DEADLINE_S):
            await putting
        # It came too late and is dropped too; asked again, all of it is told.
        assert queue.close() == 7
        assert queue.get(LONG_S) is None
        assert queue.unrolls == 0

    asyncio.run(play())


def test_close_wakes_the_getter() -> None:
    queue = UnrollQueue(4)
    getter = threading.Thread(target=queue.get, args=(LONG_S,), daemon=True)
    getter.start()
    queue.close()
    getter.join(DEADLINE_S)
    assert not getter.is_alive()


@pytest.mark.parametrize("by", ["get", "close"])
def test_the_event_loop_may_have_ended(by: str) -> None:
    """At the end of a run the prefetch thread may still take a block."""
    queue = UnrollQueue(4)
    asyncio.run(queue.put(block(4)))
    if by == "get":
        assert queue.get(0) is not None
    else:
        assert queue.close() == 4


def test_a_paced_queue_lets_in_one_batch_for_each_that_is_trained_on() -> None:
    """Groups of 3 and batches of 8: what is left over of one batch is the next one's."""
    queue, let_in = PacedUnrollQueue(8), 0
    for trained in range(20):
        while queue.try_put(block(3)):
            let_in += 3
        # Enough for the next batch, and never as much as a group more.
        assert 8 * (trained + 1) <= let_in < 8 * (trained + 1) + 3
        while queue.get(0) is not None:
            pass
        assert not queue.try_put(block(3)), "what is got is not trained on"
        queue.on_trained()


def test_a_put_into_a_paced_queue_waits_for_training() -> None:
    queue = PacedUnrollQueue(4)

    async def session() -> list[bool]:
        await queue.put(block(4))
        waiting = asyncio.create_task(queue.put(block(4)))
        await asyncio.sleep(0)
        seen = [waiting.done()]
        assert queue.get(0) is not None
        await asyncio.sleep(0)
        seen.append(waiting.done())
        threading.Thread(target=queue.on_trained).start()
        await asyncio.wait_for(waiting, DEADLINE_S)
        return seen

    assert asyncio.run(session()) == [False, False]
