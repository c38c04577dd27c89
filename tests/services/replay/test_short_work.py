"""Short work of a shard runs in the event loop, and never beside what its thread does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from seedbed.numbers import DEFAULT_BOUNDS
from seedbed.replay.sequence import SequenceSpec
from seedbed.services.replay.shard import Shard
from seedbed.spec import ArraySpec

SPEC = SequenceSpec(ArraySpec((3,), "float32"), steps=1)


@pytest.mark.parametrize(("kept_in", "size", "here"), [
    ("memory", 100, True), ("memory", 10**9, False), ("files", 100, False),
])  # fmt: skip
def test_where_work_runs(tmp_path: Path, kept_in: str, size: int, here: bool) -> None:
    async def run() -> None:
        shard = Shard(40, 0.9, tmp_path / "files" if kept_in == "files" else None)
        shard.open()
        await shard.call(shard.accept, SPEC, 0.9, DEFAULT_BOUNDS)
        thread = await shard.call_on(size, threading.get_ident)
        assert (thread == threading.get_ident()) == here
        shard.close()

    asyncio.run(run())


def test_short_work_waits_for_the_thread() -> None:
    async def run() -> None:
        shard, begun, may_end, order = (
            Shard(40, 0.9, None),
            threading.Event(),
            threading.Event(),
            [],
        )

        def long() -> None:
            begun.set()
            assert may_end.wait(30)
            order.append("long")

        busy = asyncio.create_task(shard.call(long))
        await asyncio.to_thread(begun.wait, 30)
        short = asyncio.create_task(shard.call_on(1, order.append, "short"))
        await asyncio.sleep(0)  # it has begun, and found the thread busy
        assert order == []
        may_end.set()
        await asyncio.gather(busy, short)
        assert order == ["long", "short"]
        shard.close()

    asyncio.run(run())


def test_a_failure_lets_the_next_one_in() -> None:
    async def run() -> None:
        shard = Shard(40, 0.9, None)
        with pytest.raises(ZeroDivisionError):
            await shard.call_on(1, divmod, 1, 0)
        with pytest.raises(ZeroDivisionError):
            await shard.call(divmod, 1, 0)
        assert await shard.call_on(1, divmod, 7, 2) == (3, 1)
        shard.close()

    asyncio.run(run())
