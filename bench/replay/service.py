"""Child: replay on a shard next to a bare gRPC stream of the same bytes.

Each stream is between two processes.
"""

import asyncio
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.bare_stream import PATH
from bench.child import Child
from bench.command import Command
from bench.figures import series, series_of
from bench.replay.content import atari, chunk_of
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes, sample_arrays, sequences_a_message
from seedbed.rpc import channels
from seedbed.runtime.allocator import keep_large_blocks

BATCH = 64
ENVIRONMENTS = 32
EXPONENT = 0.9
START_S = 60.0
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


class Shards:
    """Replay of one shard.

    Args:
        sequences: Capacity.
        rounds: Chunks and batches of a measurement.
        runs: Turns.
    """

    def __init__(self, sequences: int, rounds: int, runs: int) -> None:
        keep_large_blocks()
        self._sequences, self._rounds, self._runs = sequences, rounds, runs

    def measure(self, frame_stack: int, kept_in: str) -> dict[str, Any]:
        """Measure sequences a second in and out, each in turn with a bare stream of the same bytes.

        Args:
            frame_stack: K.
            kept_in: `files` or `memory`.
        """
        spec, rounds = atari(frame_stack), self._rounds
        one = sum(array.row_bytes for array in sample_arrays(spec, 1).values())
        a_message = sequences_a_message(spec)
        sent = max(1, MESSAGE_BYTES // chunk_bytes(spec))
        messages_in, messages_out = max(1, rounds * ENVIRONMENTS // sent), -(-BATCH // a_message)
        random = np.random.default_rng(0)
        chunks = [chunk_of(spec, ENVIRONMENTS, 0, random) for _ in range(3)]
        numbers = count()

        def insert(chunk: int) -> None:
            replay.add(replace(chunks[chunk], chunk_index=next(numbers)))

        def draw() -> Any:
            return replay.request_sample(random.random(BATCH))

        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="seedbed-bench-")))
            shard, up, down = (f"unix:{folder}/{name}.sock" for name in ("shard", "up", "down"))
            keep = ["--directory", f"{folder}/files"] if kept_in == "files" else []
            process = stack.enter_context(
                Command(
                    folder / "shard.log",
                    *("replay", "--listen", shard, "--metrics-port", "0"),
                    *("--sequences", str(self._sequences), *keep),
                )
            )
            bare_server = partial(Child, "bare_stream:BareServer", folder, fast_loop=True)
            stack.enter_context(bare_server("up", listen=up, reply_bytes=1))
            stack.enter_context(
                bare_server("down", listen=down, reply_bytes=a_message * one, replies=messages_out)
            )
            bare = stack.enter_context(Child("replay.service:BareClient", folder, "bare"))
            process.wait_until_log_says("listening", START_S)
            replay = ShardedReplay(spec, [shard], EXPONENT, timeout_s=60)
            for _ in range(self._sequences // ENVIRONMENTS):  # every page once
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
                inserted = rounds * ENVIRONMENTS / (time.perf_counter() - start)
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
                drawn = rounds * BATCH / (time.perf_counter() - start)
                seconds = bare.ask("down", 120, address=down, messages=messages_out, rounds=rounds)
                turns.append(
                    {
                        "insert_sequences_per_s": inserted,
                        "insert_of_bare_stream": inserted / bare_in,
                        "sample_sequences_per_s": drawn,
                        "sample_of_bare_stream": drawn * seconds / (rounds * BATCH),
                    }
                )
            keys = draw().result(60).keys
            priorities = [_priorities_per_s(replay, keys, 50 * rounds) for _ in range(self._runs)]
            replay.close()
        return {
            "frame_stack": frame_stack,
            "kept_in": kept_in,
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
