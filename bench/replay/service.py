"""Replay on a shard next to a bare gRPC stream of the same bytes, each between two processes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from bench.figures import ratio, series
from bench.replay.content import atari, chunk_of
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes, sample_arrays, sequences_a_message
from seedbed.rpc import channels
from seedbed.runtime.allocator import keep_large_blocks

BATCH = 64
ENVIRONMENTS = 32
EXPONENT = 0.9
START_S = 60.0
_DOWN, _UP = "/bare/Down", "/bare/Up"


# --- a bare stream -----------------------------------------------------------------------------


async def _serve_bare(address: str, size: int) -> None:
    """Serve Down, which sends as many messages as requested, and Up, which answers messages."""
    message = bytes(size)

    async def down(_: Any, context: Any) -> None:
        while (count := await context.read()) is not grpc.aio.EOF:
            for _ in range(int(count)):
                await context.write(message)

    async def up(_: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(b"1")

    server = channels.aio_server()
    handlers: dict[str, Any] = {
        "Down": grpc.stream_stream_rpc_method_handler(down),
        "Up": grpc.stream_stream_rpc_method_handler(up),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    channels.bind(server, address)
    await server.start()
    print("listening", file=sys.stderr, flush=True)
    await server.wait_for_termination()


async def _bare_down(address: str, messages: int, rounds: int) -> float:
    """Return the seconds of `rounds` requests for `messages` messages, two of them under way."""
    async with channels.aio_channel(address) as channel:
        call: Any = channel.stream_stream(_DOWN)()
        ask = str(messages).encode()
        await call.write(ask)
        await call.read()  # connected
        for _ in range(messages - 1):
            await call.read()
        start = time.perf_counter()
        await call.write(ask)
        for done in range(rounds):
            if done + 1 < rounds:
                await call.write(ask)
            for _ in range(messages):
                await call.read()
        return time.perf_counter() - start


async def _bare_up(address: str, size: int, messages: int) -> float:
    """Return the seconds until all messages are answered, at most 16 of them under way."""
    async with channels.aio_channel(address) as channel:
        call: Any = channel.stream_stream(_UP)()
        message, window = bytes(size), asyncio.Semaphore(16)
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


# --- measuring ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _process(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    """Run a Python process; enter the block once it listens."""
    said = folder / f"{name}.log"
    with said.open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=log, stdout=log)
    try:
        end = time.monotonic() + START_S
        while "listening" not in said.read_text():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} does not start: {said.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def _apart(what: str, address: str, first: int, second: int) -> float:
    """Run a bare client in another process: event loops of one process share gRPC's queue."""
    program = [sys.executable, "-m", "bench.replay.service", what]
    answer = subprocess.run(
        [*program, address, str(first), str(second)], check=True, capture_output=True, timeout=120
    )
    return float(answer.stdout)


def measure(
    sequences: int, frame_stack: int, in_memory: bool, rounds: int, runs: int
) -> dict[str, Any]:
    """Measure sequences a second in and out, each in turn with a bare stream of the same bytes."""
    spec = atari(frame_stack)
    one = sum(array.row_bytes for array in sample_arrays(spec, 1).values())
    a_message = sequences_a_message(spec)
    sent = max(1, MESSAGE_BYTES // chunk_bytes(spec))
    random = np.random.default_rng(0)
    chunks = [chunk_of(spec, ENVIRONMENTS, 0, random) for _ in range(3)]
    found: dict[str, list[float]] = {"insert": [], "sample": [], "bare_in": [], "bare_out": []}
    with tempfile.TemporaryDirectory(prefix="seedbed-bench-") as name:
        folder = Path(name)
        shard, bare = f"unix:{folder}/shard", f"unix:{folder}/bare"
        keep = [] if in_memory else ["--directory", str(folder / "files")]
        command = ["seedbed.cli.main", "replay", "--listen", shard, "--metrics-port", "0"]
        command += ["--sequences", str(sequences), *keep]
        size = a_message * one
        with (
            _process(folder, "shard", *command),
            _process(folder, "bare", "bench.replay.service", "--serve", bare, str(size)),
        ):
            replay = ShardedReplay(spec, [shard], EXPONENT, timeout_s=60)
            number = 0
            for _ in range(sequences // ENVIRONMENTS):  # every page once
                replay.add(replace(chunks[0], chunk_index=number))
                number += 1
                replay.flush(60)
            messages = -(-BATCH // a_message)
            for _ in range(4):  # and the learner's
                waiting = [replay.request_sample(random.random(BATCH)) for _ in range(3)]
                for future in waiting:
                    future.result(60)
            for _ in range(runs):
                start = time.perf_counter()
                for turn in range(rounds):
                    replay.add(replace(chunks[turn % 3], chunk_index=number))
                    number += 1
                replay.flush(60)
                seconds = time.perf_counter() - start
                found["insert"].append(rounds * ENVIRONMENTS / seconds)
                count = max(1, rounds * ENVIRONMENTS // sent)
                seconds = _apart("--up", bare, sent * chunk_bytes(spec), count)
                found["bare_in"].append(count * sent / seconds)
                start = time.perf_counter()
                futures = [replay.request_sample(random.random(BATCH)) for _ in range(2)]
                for turn in range(rounds):
                    if turn + 2 < rounds:
                        futures.append(replay.request_sample(random.random(BATCH)))
                    futures.pop(0).result(60)
                seconds = time.perf_counter() - start
                found["sample"].append(rounds * BATCH / seconds)
                seconds = _apart("--down", bare, messages, rounds)
                found["bare_out"].append(rounds * BATCH / seconds)
            keys = replay.request_sample(random.random(BATCH)).result(60).keys
            priorities = _priorities(replay, keys, runs, 50 * rounds)
            replay.close()
    return {
        "frame_stack": frame_stack,
        "kept_in": "memory" if in_memory else "files",
        "insert_sequences_per_s": series(found["insert"]),
        "insert_of_bare_stream": ratio(found["insert"], found["bare_in"]),
        "sample_sequences_per_s": series(found["sample"]),
        "sample_of_bare_stream": ratio(found["sample"], found["bare_out"]),
        "priorities_per_s": series(priorities),
    }


def _priorities(replay: ShardedReplay, keys: Any, runs: int, batches: int) -> list[float]:
    """Measure new priorities a second, until the last one is set."""
    rates = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(batches):
            replay.update_priorities(keys, np.ones(len(keys), np.float32))
        replay.flush(60)
        rates.append(batches * len(keys) / (time.perf_counter() - start))
    return rates


def main(argv: Sequence[str] | None = None) -> None:
    """Print the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--sequences", type=int, default=1024)
    parser.add_argument("--serve", nargs=2, metavar=("ADDRESS", "BYTES"), help="the bare server")
    parser.add_argument("--up", nargs=3, metavar=("ADDRESS", "BYTES", "MESSAGES"))
    parser.add_argument("--down", nargs=3, metavar=("ADDRESS", "MESSAGES", "ROUNDS"))
    args = parser.parse_args(argv)
    keep_large_blocks()
    if args.serve:
        channels.run(_serve_bare(args.serve[0], int(args.serve[1])))
    elif args.up or args.down:
        address, first, second = args.up or args.down
        client = _bare_up if args.up else _bare_down
        print(channels.run(client(address, int(first), int(second))))
    else:
        cases = [
            measure(args.sequences, stack, in_memory, args.rounds, args.runs)
            for stack, in_memory in ((4, False), (4, True), (1, False))
        ]
        print(json.dumps({"cases": cases}))


if __name__ == "__main__":
    main()
