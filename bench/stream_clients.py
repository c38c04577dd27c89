"""Child: lock-step streams that send the same frames in every step, to whichever server.

Client code and bytes are the same for the learner and for the bare server. Nothing is parsed here,
and a step is put together by one copy, so that the client costs little of what both share.
"""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np

from bench.bare_stream import PATH
from bench.null_learner import pong_spec
from seedbed.config import load_experiment
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN
from seedbed.rpc.hello import hello_metadata
from seedbed.rpc.step_codec import Step, write_actor_message
from seedbed.services.actor.messages import make_hello
from seedbed.spec import FIRST

REPLY_S = 60.0


class Clients:
    """`streams` streams of E environments each, every one with a connection of its own.

    Args:
        experiment: file of the experiment.
        address: of the server.
        streams: number of streams.
        num_envs: E.
    """

    def __init__(self, experiment: str, address: str, streams: int, num_envs: int) -> None:
        spec = pong_spec(load_experiment(experiment))
        env: Any = SimpleNamespace(spec=spec, num_envs=num_envs)
        self._metadata = hello_metadata(make_hello(env, "bench"), PLAIN)
        rows = np.random.default_rng(0).integers(
            0, 256, num_envs * spec.observation.row_bytes, np.uint8
        )
        self._first, self._other = (
            Step(0, rows.data, bytes(4 * num_envs), bytes([flag] * num_envs)) for flag in (FIRST, 0)
        )
        self._address = address
        self._latencies_s: list[float] = []
        self._calls: list[Any] = []
        self._sequences = [0] * streams
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open())

    async def _open(self) -> None:
        for _ in self._sequences:
            channel = channels.aio_channel(self._address)
            call: Any = channel.stream_stream(PATH)(metadata=self._metadata)
            async with asyncio.timeout(REPLY_S):
                await call.read()
            self._calls.append(call)

    async def _step(self, stream: int) -> None:
        sequence = self._sequences[stream]
        step = self._other._replace(sequence=sequence) if sequence else self._first
        sent = time.perf_counter()
        await self._calls[stream].write(write_actor_message(step))
        if await self._calls[stream].read() is grpc.aio.EOF:
            raise ConnectionError(f"{self._address} ended stream {stream} at step {sequence}")
        self._sequences[stream] += 1
        self._latencies_s.append(time.perf_counter() - sent)

    async def _run(self, until: float, steps: int) -> None:
        async def play(stream: int) -> None:
            end = self._sequences[stream] + steps
            while time.perf_counter() < until and (not steps or self._sequences[stream] < end):
                await self._step(stream)

        async with asyncio.timeout(until - time.perf_counter() + REPLY_S):
            await asyncio.gather(*(play(stream) for stream in range(len(self._sequences))))

    def measure(self, seconds: float) -> dict[str, Any]:
        """Messages that were answered, seconds and CPU seconds; all streams wait in between."""
        before, started, cpu = list(self._sequences), time.perf_counter(), time.process_time()
        self._latencies_s.clear()
        self._loop.run_until_complete(self._run(started + seconds, 0))
        made = [now - then for now, then in zip(self._sequences, before, strict=True)]
        p50, p99 = np.percentile(self._latencies_s, (50, 99)) if self._latencies_s else (0, 0)
        return {
            "messages": sum(made),
            "least": min(made),
            "most": max(made),
            "mean": sum(made) / len(made),
            "p50_ms": 1e3 * float(p50),
            "p99_ms": 1e3 * float(p99),
            "seconds": time.perf_counter() - started,
            "cpu_s": time.process_time() - cpu,
        }

    def play(self, steps: int) -> None:
        """So many steps of every stream."""
        self._loop.run_until_complete(self._run(time.perf_counter() + REPLY_S, steps))
