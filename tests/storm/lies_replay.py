"""Lies of a learner's credential: to a shard, about its bounds, sequences, keys and priorities."""

from __future__ import annotations

import random
import time
from typing import Any

import grpc
import numpy as np

from seedbed.replay import codec
from seedbed.replay.sequence import SequenceSpec, chunk_arrays
from seedbed.rpc.hello import HELLO_KEY
from seedbed.v1 import replay_pb2 as wire
from tests.storm.calls import HOLD_S, Entry
from tests.storm.lies import Lie, refused
from tests.storm.streams import INVALID, MISFIT
from tests.support.shard_process import ALPHA

_SERVICE = "/seedbed.v1.Replay/"
_METHODS = ("Insert", "Sample", "Prioritize")
ENVIRONMENTS = 4  # of a chunk


class ReplayLies:
    """Lies to one shard.

    Args:
        entry: the shard.
        spec: of the honest learner's sequences.
    """

    def __init__(self, entry: Entry, spec: SequenceSpec) -> None:
        self._entry, self._spec = entry, spec

    def lies(self) -> list[Lie]:
        return [
            Lie("bounds of a Hello", self._bounds),
            Lie("a sequence that is not allowed, and silence", self._silence),
            Lie("a sequence that is not allowed, and the end", self._leave),
            Lie("sequences of another size", self._other_spec),
            Lie("keys and incarnations", self._keys),
            Lie("draws that nobody reads", self._unread),
            Lie("half a message", self._half),
            Lie("a chunk sent twice", self._twice),
            Lie("sequences at their bounds, of the largest priority", self._largest, spoils=True),
            Lie("priorities of others' sequences", self._priorities, spoils=True),
        ]

    def _hello(self, **changes: Any) -> wire.ReplayHello:
        fields: dict[str, Any] = {
            "protocol_version": 1,
            "oldest_protocol_version": 1,
            "learner": "storm",
            "spec": codec.spec_message(self._spec),
            "priority_exponent": ALPHA,
        }
        return wire.ReplayHello(**{**fields, **changes})

    def _stream(self, method: str, **changes: Any) -> Any:
        said = self._hello(**changes).SerializeToString()
        return self._entry.call(_SERVICE + method, (HELLO_KEY, said))

    def _chunk(self, place: int, **changes: Any) -> bytes:
        parts = chunk_arrays(self._spec, ENVIRONMENTS).items()
        arrays = {name: np.zeros(one.shape, one.dtype) for name, one in parts}
        arrays["priority"][:] = 1.0
        for name, value in changes.items():
            arrays[name][:] = value
        message = wire.InsertRequest(
            sequence=place, stream_id=77, chunk_index=place, environments=ENVIRONMENTS, version=1.0
        )
        pieces = codec.pack(message, [np.ascontiguousarray(one) for one in arrays.values()])
        return b"".join(one if isinstance(one, bytes) else one.tobytes() for one in pieces)

    def _bounds(self, chance: random.Random) -> str:
        """A learner whose numbers may be beyond those that the shard stores is refused."""
        bound = chance.choice((1.1e6, 1e30, 1e308, 2.0**53))
        which = chance.choice(("max_abs_reward", "max_abs_observation"))
        with self._stream("Insert", **{which: bound}) as call:
            return refused(call.finish(), MISFIT)

    def _wrong_chunk(self, chance: random.Random) -> bytes:
        name, value = chance.choice(
            (
                ("reward", np.nan),
                ("reward", 3e38),
                ("frames", np.inf),
                ("priority", 2e9),
                ("priority", -1.0),
                ("flags", 255),
            )
        )
        return self._chunk(0, **{name: value})

    def _silence(self, chance: random.Random) -> str:
        """The refusal comes although nothing follows the chunk."""
        with self._stream("Insert") as call:
            call.answer()  # Welcome
            call.send(self._wrong_chunk(chance))
            return refused(call.end(), INVALID)

    def _leave(self, chance: random.Random) -> str:
        with self._stream("Insert") as call:
            call.answer()  # Welcome
            call.send(self._wrong_chunk(chance))
            time.sleep(chance.uniform(0, 0.01))
        return ""

    def _other_spec(self, chance: random.Random) -> str:
        spec = codec.spec_message(self._spec)
        setattr(spec, chance.choice(("steps", "state_size", "burn_in", "actions")), 7)
        with self._stream("Insert", spec=spec) as call:
            return refused(call.finish(), MISFIT)

    def _keys(self, chance: random.Random) -> str:
        keys = np.array([chance.choice((2**62, 2**63 - 1, 10**9)) for _ in range(64)], np.int64)
        message = wire.PrioritizeRequest(
            sequence=0,
            incarnation=chance.choice((0, 1, 2**64 - 1)),
            key=keys.tobytes(),
            priority=np.full(64, 1e9, np.float32).tobytes(),
        )
        with self._stream("Prioritize") as call:
            call.answer()  # Welcome
            call.send(message.SerializeToString())
            return "" if call.answer() is not None else refused(call.end(), grpc.StatusCode.OK)

    def _unread(self, chance: random.Random) -> str:
        uniform = np.linspace(0, 1, 4096, endpoint=False).tobytes()
        with self._stream("Sample") as call:
            call.answer()  # Welcome
            for request in range(4):
                message = wire.SampleRequest(request=request, uniform=uniform)
                call.send(message.SerializeToString())
            time.sleep(chance.uniform(0, HOLD_S))
        return ""

    def _half(self, chance: random.Random) -> str:
        if self._entry.credentials.tls is None:
            method, said = chance.choice(_METHODS), self._hello().SerializeToString()
            size = chance.choice((1 << 20, 4 << 20))
            self._entry.half_messages(_SERVICE + method, size, 3, (HELLO_KEY, said))
        return ""

    def _twice(self, chance: random.Random) -> str:
        """A chunk whose number has gone by is refused."""
        with self._stream("Insert") as call:
            call.answer()  # Welcome
            for _ in range(2):
                call.send(self._chunk(0, priority=0.0))
            return refused(call.end(), INVALID)

    def _largest(self, chance: random.Random) -> str:
        edge = chance.choice((1e6, -1e6, 1e-45, -0.0))
        with self._stream("Insert") as call:
            call.answer()  # Welcome
            for place in range(16):
                call.send(self._chunk(place, reward=edge, frames=edge, state=1e9, priority=1e9))
                if call.answer() is None:
                    return "a sequence within the bounds was refused"
        return ""

    def _priorities(self, chance: random.Random) -> str:
        keys = np.arange(4000, dtype=np.int64)
        value = chance.choice((0.0, 1e9, 1e-45))
        with self._stream("Prioritize") as call:
            welcome = call.answer()
            if welcome is None:
                return "a learner was refused"
            state = wire.PrioritizeReply.FromString(welcome).welcome.state
            message = wire.PrioritizeRequest(
                sequence=0,
                incarnation=state.incarnation,
                key=keys.tobytes(),
                priority=np.full(4000, value, np.float32).tobytes(),
            )
            call.send(message.SerializeToString())
            call.answer()
        return ""
