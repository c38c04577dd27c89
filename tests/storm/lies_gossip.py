"""Lies of a learner's credential: to other learners, about its rank, its counts and its numbers."""

from __future__ import annotations

import ast
import random
import re
import time
import zlib
from typing import Any

import grpc
import numpy as np

from seedbed.v1 import gossip_pb2 as wire
from tests.storm.calls import HOLD_S, Call, Entry
from tests.storm.lies import Lie, refused
from tests.storm.streams import MISFIT

_SERVICE = "/seedbed.v1.Gossip/"
_KINDS: dict[str, Any] = {
    "Push": wire.PushRequest,
    "Reduce": wire.ReduceRequest,
    "Accumulate": wire.AccumulateRequest,
}
TAKEN = grpc.StatusCode.ALREADY_EXISTS  # of a rank whose process is connected
COUNTS: tuple[dict[str, Any], ...] = (
    {"env_frames": 10**12},
    {"env_frames": 2**53},
    {"dollars": 1e15},
    {"dollars": 1e300},
    {"seconds": 2.0**53},
    {"updates": 10**12},
    {"iteration": 2**53},
    {"return_sum": 2.0**53, "return_count": 1},
    {"over": "stop.env_frames: 1e12 of 100"},
)


class GossipLies:
    """Lies to learner 0, as learner 1, which is connected.

    Args:
        entry: learner 0.
        experiment: its name.
        learners: of the team.
        methods: streams of this topology that learner 0 serves.
    """

    def __init__(
        self, entry: Entry, experiment: str, learners: int, methods: tuple[str, ...]
    ) -> None:
        self._entry, self._methods = entry, methods
        self._experiment, self._learners = experiment, learners
        self._layout = self._find_layout()

    def lies(self) -> list[Lie]:
        return [
            Lie("a Hello in the rank of another", self._rank),
            Lie("counts of another's heartbeat", self._counts),
            Lie("parameters of another", self._parameters),
            Lie("ranks and learners that are not", self._team),
            Lie("states that nobody reads", self._unread),
            Lie("half a message", self._half),
            Lie("streams that leave at once", self._leave),
        ]

    def _hello(self, **changes: Any) -> wire.GossipHello:
        fields: dict[str, Any] = {
            "protocol_version": 1,
            "experiment": self._experiment,
            "rank": 1,
            "learners": self._learners,
            "parameters": self._layout,
            "incarnation": 5,
        }
        return wire.GossipHello(**{**fields, **changes})

    def _find_layout(self) -> list[wire.Parameter]:
        """Learn the names and shapes of the parameters, from what a learner's refusals tell."""
        self._layout = []
        with self._entry.channel() as channel:
            fetch: Any = channel.unary_stream(
                _SERVICE + "Fetch", request_serializer=wire.FetchRequest.SerializeToString
            )
            while True:
                request = wire.FetchRequest(hello=self._hello())
                try:
                    list(fetch(request, metadata=self._entry.credentials.metadata(), timeout=20))
                    return self._layout
                except grpc.RpcError as error:
                    self._correct(error.details())  # type: ignore[attr-defined]

    def _correct(self, words: str) -> None:
        if found := re.search(r"parameter '(.+?)' here is", words):
            self._layout[-1].name = found[1]
        elif found := re.search(r"has shape (\[.*?\]) here", words):
            self._layout[-1].ClearField("shape")
            self._layout[-1].shape.extend(ast.literal_eval(found[1]))
        elif " parameters here and " in words:
            self._layout.append(wire.Parameter(name="?", shape=[1]))
        else:
            raise AssertionError(words)

    def _begin(self, call: Call, method: str, **changes: Any) -> None:
        hello: Any = {"hello": self._hello(**changes)}
        call.send(_KINDS[method](**hello).SerializeToString())

    def _stream(self, method: str) -> Any:
        return self._entry.call(_SERVICE + method)

    def _incarnation(self, chance: random.Random) -> int:
        return chance.choice((0, 1, 2**63 - 1, 2**64 - 1, chance.getrandbits(63)))

    def _rank(self, chance: random.Random) -> str:
        method = chance.choice(self._methods)
        with self._stream(method) as call:
            self._begin(call, method, incarnation=self._incarnation(chance))
            return refused(call.end(), TAKEN)

    def _counts(self, chance: random.Random) -> str:
        counts = {"iteration": 10**6, **chance.choice(COUNTS)}
        heartbeat = wire.PushRequest(heartbeat=wire.Member(**counts))
        with self._stream("Push") as call:
            self._begin(call, "Push", incarnation=self._incarnation(chance))
            call.send(heartbeat.SerializeToString())
            return refused(call.end(), TAKEN)

    def _parameters(self, chance: random.Random) -> str:
        size = sum(int(np.prod(one.shape)) for one in self._layout)
        value = chance.choice((0.0, -0.0, 1e-45, 1e6, 3e38, 1.0))
        data = np.full(size, value, np.float32).tobytes()
        chunk = wire.Chunk(
            iteration=chance.choice((1, 10**9, 2**53)),
            size=len(data),
            crc32=zlib.crc32(data),
            payload=data,
        )
        method = "Accumulate" if "Accumulate" in self._methods else "Push"
        field: Any = {"gradients" if method == "Accumulate" else "chunk": chunk}
        with self._stream(method) as call:
            self._begin(call, method, incarnation=self._incarnation(chance))
            call.send(_KINDS[method](**field).SerializeToString())
            return refused(call.end(), TAKEN)

    def _team(self, chance: random.Random) -> str:
        changes = chance.choice(
            (
                {"rank": 0},
                {"rank": self._learners},
                {"rank": 2**32 - 1},
                {"learners": 2**32 - 1},
                {"learners": 1},
                {"parameters": self._layout[1:]},
            )
        )
        method = chance.choice(self._methods)
        with self._stream(method) as call:
            self._begin(call, method, **changes)
            return refused(call.end(), MISFIT)

    def _unread(self, chance: random.Random) -> str:
        request = wire.FetchRequest(hello=self._hello(), whole_state=chance.random() < 0.5)
        with self._entry.channel() as channel:
            calls = [
                channel.unary_stream(_SERVICE + "Fetch")(
                    request.SerializeToString(),
                    metadata=self._entry.credentials.metadata(),
                    timeout=20,
                )
                for _ in range(8)
            ]
            time.sleep(chance.uniform(0, HOLD_S))
            for call in calls:
                call.cancel()
        return ""

    def _half(self, chance: random.Random) -> str:
        if self._entry.credentials.tls is None:
            method = chance.choice((*self._methods, "Fetch"))
            self._entry.half_messages(_SERVICE + method, 4 << 20, 12)
        return ""

    def _leave(self, chance: random.Random) -> str:
        for _ in range(10):
            method = chance.choice(self._methods)
            with self._stream(method) as call:
                self._begin(call, method, incarnation=self._incarnation(chance))
                time.sleep(chance.uniform(0, 0.02))
        return ""
