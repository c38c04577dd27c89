"""Child: replay on a shard next to a bare gRPC stream of the same bytes.

Each stream is between two processes.
"""

import asyncio
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.bare_stream import PATH
from bench.child import Child
from bench.figures import series, series_of
from bench.replay.content import atari, chunk_of, transitions
from bench.replay.shard import EXPONENT, START_S, start_shard
from bench.sides import address_of
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes, sequence_bytes, sequences_a_message
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc import channels
from seedbed.runtime.allocator import keep_large_blocks

UNDER_WAY = 16  # messages of the bare stream


class BareClient:
    """Streams to and from `BareServer`.

    A process of its own: event loops of one process share gRPC's queue.
    """

    def down(self, address: str, messages: int, rounds: int) -> float:
        """Return the seconds of requests for messages, two requests under way.

        Args:
            address: Of a server that answers a request with all messages.
            messages: Messages of a request.
            rounds: Requests.
        """
        return channels.run(self._down(address, messages, rounds))

    async def _down(self, address: str, messages: int, rounds: int) -> float:
        async with channels.aio_channel(address) as channel:
            call: Any = channel.stream_stream(PATH)()
            await call.write(b"1")
            for _ in range(messages):  # connected
                await call.read()
            start = time.perf_counter()
            await call.write(b"1")
            for done in range(rounds):
                if done + 1 < rounds:
                    await call.write(b"1")
                for _ in range(messages):
                    await call.read()
            return time.perf_counter() - start

    def up(self, address: str, size: int, messages: int) -> float:
        """Return the seconds until all messages are answered.

        Args:
            address: Of a server that answers each message once.
            size: Bytes of a message.
            messages: How many.
        """
        return channels.run(self._up(address, size, messages))

    async def _up(self, address: str, size: int, messages: int) -> float:
        async with channels.aio_channel(address) as channel:
            call: Any = channel.stream_stream(PATH)()
            message, window = bytes(size), asyncio.Semaphore(UNDER_WAY)
            await call.write(message)
            await call.read()
            start = time.perf_counter()

            async def send() -> None:
                for _ in range(messages):
                    await window.acquire()
                    await call.write(message)

            sending = asyncio.create_task(send())
            for _ in range(messages):
                await call.read()
                window.release()
            await sending
            return time.perf_counter() - start


@dataclass(frozen=True)
class Content:
    """What a shard is measured with.

    Attributes:
        spec: Sizes of a sequence.
        environments: Sequences of a chunk.
        batch: Sequences of a sample.
        sequences: Capacity of the shard.
        rounds: Chunks and batches of a turn.
    """

    spec: SequenceSpec
    environments: int
    batch: int
    sequences: int
    rounds: int


class Shards:
    """Replay of one shard, which is another process.

    Args:
        sequences: Capacity, of sequences of Atari.
        rounds: Their chunks and batches of a turn; of transitions thirty times as many.
        runs: Turns.
    """

    def __init__(self, sequences: int, rounds: int, runs: int) -> None:
        keep_large_blocks()
        self._runs = runs
        self._contents = {
            "sequences": Content(atari(), 32, 64, sequences, rounds),
            "sequences, stack 1": Content(atari(1), 32, 64, sequences, rounds),
            "transitions": Content(transitions(), 64, 256, 64 * sequences, 30 * rounds),
        }

    def measure(self, content: str, kept_in: str, way: str) -> dict[str, Any]:
        """Measure sequences a second in and out, each in turn with a bare stream of the same bytes.

        Args:
            content: `sequences` or `transitions`, of Atari and of "Deep In-GPU Experience Replay".
            kept_in: `files` or `memory`.
            way: `shared memory` or `tcp`. The bare stream has a unix socket, or a port too.
        """
        of = self._contents[content]
        spec, rounds = of.spec, of.rounds
        one, a_message = sequence_bytes(spec), sequences_a_message(spec)
        sent = min(of.environments, max(1, MESSAGE_BYTES // chunk_bytes(spec)))
        messages_in, messages_out = rounds * of.environments // sent, -(-of.batch // a_message)
        reply_bytes = -(-of.batch // messages_out) * one
        random = np.random.default_rng(0)
        chunks = [chunk_of(spec, of.environments, 0, random) for _ in range(3)]
        numbers = count()

        def insert(chunk: int) -> None:
            replay.add(replace(chunks[chunk], chunk_index=next(numbers)))

        def draw() -> Any:
            return replay.request_sample(random.random(of.batch))

        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="seedbed-bench-")))
            shard, up, down = (address_of(way, folder, name) for name in ("shard", "up", "down"))
            keep = ["--directory", f"{folder}/files"] if kept_in == "files" else []
            process = stack.enter_context(start_shard(folder, shard, of.sequences, *keep))
            bare_server = partial(Child, "bare_stream:BareServer", folder, fast_loop=True)
            stack.enter_context(bare_server("up", listen=up, reply_bytes=1))
            stack.enter_context(
                bare_server("down", listen=down, reply_bytes=reply_bytes, replies=messages_out)
            )
            bare = stack.enter_context(Child("replay.service:BareClient", folder, "bare"))
            process.wait_until_log_says("listening", START_S)
            replay = ShardedReplay(spec, [shard], EXPONENT, timeout_s=60)
            for _ in range(of.sequences // of.environments):  # every page once
                insert(0)
            replay.flush(60)
            for _ in range(4):  # and the learner's
                for waiting in [draw() for _ in range(3)]:
                    waiting.result(60)
            turns = []
            for _ in range(self._runs):
                start = time.perf_counter()
                for turn in range(rounds):
                    insert(turn % 3)
                replay.flush(60)
                inserted = rounds * of.environments / (time.perf_counter() - start)
                seconds = bare.ask(
                    "up", 120, address=up, size=sent * chunk_bytes(spec), messages=messages_in
                )
                bare_in = messages_in * sent / seconds
                start = time.perf_counter()
                under_way = deque(draw() for _ in range(2))
                for turn in range(rounds):
                    if turn + 2 < rounds:
                        under_way.append(draw())
                    under_way.popleft().result(60)
                drawn = rounds * of.batch / (time.perf_counter() - start)
                seconds = bare.ask("down", 120, address=down, messages=messages_out, rounds=rounds)
                turns.append(
                    {
                        "insert_sequences_per_s": inserted,
                        "insert_mb_per_s": inserted * chunk_bytes(spec) / 1e6,
                        "insert_of_bare_stream": inserted / bare_in,
                        "sample_sequences_per_s": drawn,
                        "sample_mb_per_s": drawn * one / 1e6,
                        "sample_of_bare_stream": drawn * seconds / (rounds * of.batch),
                    }
                )
            keys = draw().result(60).keys
            priorities = [
                _priorities_per_s(replay, keys, min(600, 50 * rounds)) for _ in range(self._runs)
            ]
            replay.close()
        return {
            "content": content,
            "kept_in": kept_in,
            "way": way,
            **series_of(turns),
            "priorities_per_s": series(priorities),
        }


def _priorities_per_s(replay: ShardedReplay, keys: Any, batches: int) -> float:
    """Measure new priorities a second, until the last one is set."""
    start = time.perf_counter()
    for _ in range(batches):
        replay.update_priorities(keys, np.ones(len(keys), np.float32))
    replay.flush(60)
    return batches * len(keys) / (time.perf_counter() - start)
