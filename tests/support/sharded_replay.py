"""Learners' clients of replay shards, what they store and draw, and Hellos by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import spec_message
from seedbed.replay.sequence import SequenceSpec
from seedbed.v1 import replay_pb2 as wire
from tests.support.replay_content import SPEC, chunk
from tests.support.shard_process import ALPHA, ShardProcess
from tests.support.waiting import wait_for

WAIT_S = 30.0


@contextmanager
def replay_of(
    made: list[ShardProcess], spec: SequenceSpec = SPEC, alpha: float = ALPHA, **options: Any
) -> Iterator[ShardedReplay]:
    replay = ShardedReplay(spec, [shard.address for shard in made], alpha, **options)
    try:
        yield replay
    finally:
        replay.close()


def all_up(replay: ShardedReplay, count: int) -> None:
    wait_for(lambda: replay.stats().healthy_shards == count, f"{count} shards are up")


def fill(replay: ShardedReplay, stream_ids: range, chunks: int, environments: int = 3) -> None:
    for number in range(chunks):
        for stream_id in stream_ids:
            replay.add(chunk(SPEC, stream_id, number, environments))
    replay.flush(WAIT_S)


def evenly(count: int) -> NDArray[np.float64]:
    return (np.arange(count) + 0.5) / count


def hello(**changes: Any) -> wire.ReplayHello:
    fields = {"protocol_version": 1, "oldest_protocol_version": 1, "learner": "test",
              "spec": spec_message(SPEC), "priority_exponent": ALPHA}  # fmt: skip
    return wire.ReplayHello(**{**fields, **changes})
