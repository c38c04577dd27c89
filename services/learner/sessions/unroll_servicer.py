"""Servicer of actors that choose their actions: parameters go out, unrolls come in (IMPALA)."""

import asyncio
import time
from collections.abc import Iterator

import numpy as np
from typing_extensions import override

from seedbed.config import Experiment
from seedbed.rpc.step_codec import Step
from seedbed.services.learner.components import ComponentsFuture, ParameterStore
from seedbed.services.learner.sessions.servicer import InferenceServicer
from seedbed.services.learner.sessions.stream_state import StreamState
from seedbed.services.learner.sessions.unrolls_of_actors import UnrollReader
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.telemetry import Telemetry
from seedbed.types import Params
from seedbed.v1 import inference_pb2 as wire

# Bytes of the flat buffer in one message.
_PART_BYTES = 4 * 1024 * 1024


class UnrollServicer(InferenceServicer):
    """Answers each unroll of a stream with the newest parameters, once the queue has the unroll.

    Args:
        experiment: as of `InferenceServicer`.
        queue: takes the unrolls.
        telemetry: receives counts and times.
        components: built for the first actor's spec; awaited with notices.
        store: the source of the parameters.
    """

    takes_local_streams = False

    def __init__(
        self,
        experiment: Experiment,
        queue: UnrollQueue,
        telemetry: Telemetry,
        components: ComponentsFuture,
        store: ParameterStore,
    ) -> None:
        super().__init__(experiment, queue, telemetry, components)
        self._store = store
        self._flat = b""
        self._flat_version = -1
        self._flattening = asyncio.Lock()

    @override
    async def _serve(self, state: StreamState) -> None:
        await self._welcome(state)
        state.learner_since = time.perf_counter()
        unroll_spec = await self._components.unroll()
        assert isinstance(unroll_spec, UnrollSpec), "agents with replay act in the learner"
        state.session = self._new_session(state, unroll_spec)
        reader = UnrollReader(state.session, state.handshake.spec, unroll_spec)
        sent, received = await self._send_parameters(state, -1), 0
        while True:
            state.actor_since, state.learner_since = time.perf_counter(), None
            message = await state.stream.receive()
            state.actor_since = state.learner_since = time.perf_counter()
            if isinstance(message, Step) or not message.HasField("unroll"):
                self._log_goodbye(state, message, "unroll")
                return
            received = message.unroll.ByteSize()
            unroll = reader.read(message.unroll, self._store.newest()[1])
            del message  # its arrays are copied
            if not self._queue.try_put(unroll):
                await self._wait_for_room(state, unroll)
            if self._ending is not None:
                # Only now, because an actor reads where it awaits parameters.
                await self._end_stream(state.stream)
                return
            sent = await self._send_parameters(state, sent, received)

    async def _send_parameters(self, state: StreamState, sent: int, received: int = 0) -> int:
        """Send the newest parameters in parts, or their version where the actor has them.

        Args:
            state: the stream's.
            sent: version that was sent last; -1 for none.
            received: bytes of the unroll that this answers.

        Returns:
            The version.
        """
        params, version = self._store.newest()
        parts = await self._parts(params, version, sent)
        await state.wait_for_notice()
        state.learner_since = None
        size = 0
        for part in parts:
            size, version = size + len(part.values), part.version
            await state.stream.send(wire.LearnerMessage(parameters=part))
        if state.stream.crosses_network:
            self._telemetry.network.on_step(received, size)
        return version

    async def _parts(self, params: Params, version: int, sent: int) -> Iterator[wire.Parameters]:
        if version == sent:
            return iter([wire.Parameters(version=version)])
        async with self._flattening:
            if version > self._flat_version:
                # In another thread, because an accelerator copies them to the host first.
                self._flat = await asyncio.to_thread(_flatten, params)
                self._flat_version = version
            flat, version = self._flat, self._flat_version
        starts = range(0, len(flat), _PART_BYTES)
        return (
            wire.Parameters(
                version=version,
                values=flat[at : at + _PART_BYTES],
                more=at + _PART_BYTES < len(flat),
            )
            for at in starts
        )


def _flatten(params: Params) -> bytes:
    """Return all parameters one after the other, as float32."""
    return b"".join(np.asarray(array, np.float32).tobytes() for array in params)
