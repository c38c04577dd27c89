"""Lies of a learner's credential: to other learners, about its rank, its counts and its numbers."""

from __future__ import annotations

import ast
import hashlib
import random
import re
import time
import zlib
from typing import Any

import grpc
import numpy as np

from seedbed.rpc.hello import HELLO_KEY
from seedbed.v1 import gossip_pb2 as wire
from tests.storm.calls import HOLD_S, Entry
from tests.storm.lies import Lie, refused
from tests.storm.streams import MISFIT

_SERVICE = "/seedbed.v1.Gossip/"
NOT_PROVED = grpc.StatusCode.PERMISSION_DENIED  # without the key of the rank
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
    """Lies to learner 0: as learner 1, which is connected, and in the own rank.

    Args:
        entry: learner 0.
        other: learner 1.
        experiment: its name.
        learners: of the team.
        rank: own one, whose key the credential is; None without a key.
        methods: streams of this topology that learner 0 serves.
    """

    def __init__(
        self,
        entry: Entry,
        other: Entry,
        experiment: str,
        learners: int,
        rank: int | None,
        methods: tuple[str, ...],
    ) -> None:
        self._entry, self._other, self._methods = entry, other, methods
        self._experiment, self._learners, self._own = experiment, learners, rank
        self._digests: list[int] = []
        self._size = 0
        if rank is not None:
            self._find_layout()

    def lies(self) -> list[Lie]:
        of_others = [
            Lie("a Hello in the rank of another", self._rank),
            Lie("a Hello in the rank and incarnation of another", self._copied),
            Lie("counts of another's heartbeat", self._counts),
            Lie("parameters of another", self._parameters),
            Lie("ranks and learners that are not", self._team),
            Lie("states that nobody reads", self._unread),
            Lie("half a message", self._half),
            Lie("streams that leave at once", self._leave),
        ]
        if self._own is None:
            return of_others
        own = [
            Lie("counts of the own heartbeat", self._own_counts),
            Lie("parameters of the own rank at their bounds", self._own_parameters, spoils=True),
        ]
        return of_others + own * 2

    def _hello(self, **changes: Any) -> tuple[str, bytes]:
        """Return the metadata of a call in the rank of another."""
        fields: dict[str, Any] = {
            "protocol_version": 1,
            "experiment": self._experiment,
            "rank": 1,
            "learners": self._learners,
            "parameters": self._digests,
            "incarnation": 5,
        }
        return HELLO_KEY, wire.GossipHello(**{**fields, **changes}).SerializeToString()

    def _find_layout(self) -> None:
        """Learn the digests and sizes of the parameters, from what a learner's refusals tell."""
        while words := self._misfit():
            if found := re.match(r"(.+) (\[.*?\]) here is not there", words):
                text = f"{found[1]} {found[2]}".encode()
                self._digests[-1] = int.from_bytes(hashlib.sha256(text).digest()[:4], "little")
                self._size += int(np.prod(ast.literal_eval(found[2])))
            elif " parameters here and " in words:
                self._digests.append(0)
            else:
                raise AssertionError(words)

    def _misfit(self) -> str:
        """Return why the Hello is refused; an empty string if it is not."""
        with self._entry.channel() as channel:
            try:
                list(self._fetch(channel, rank=self._own))
            except grpc.RpcError as error:
                return str(error.details())  # type: ignore[attr-defined]
        return ""

    def _fetch(
        self,
        channel: grpc.Channel,
        entry: Entry | None = None,
        whole_state: bool = False,
        **changes: Any,
    ) -> Any:
        fetch: Any = channel.unary_stream(_SERVICE + "Fetch")
        request = wire.FetchRequest(whole_state=whole_state).SerializeToString()
        credentials = (entry or self._entry).credentials
        metadata = (*credentials.metadata(), self._hello(**changes))
        return fetch(request, metadata=metadata, timeout=20)

    def _stream(self, method: str, **changes: Any) -> Any:
        return self._entry.call(_SERVICE + method, self._hello(**changes))

    def _incarnation(self, chance: random.Random) -> int:
        return chance.choice((0, 1, 2**63 - 1, 2**64 - 1, chance.getrandbits(63)))

    def _rank(self, chance: random.Random) -> str:
        method = chance.choice(self._methods)
        with self._stream(method, incarnation=self._incarnation(chance)) as call:
            return refused(call.end(), NOT_PROVED)

    def _copied(self, chance: random.Random) -> str:
        """A learner tells each peer its incarnation, which proves nothing."""
        if (reply := self._fetched(self._other)) is None:
            return ""
        method = chance.choice(self._methods)
        with self._stream(method, incarnation=reply.incarnation) as call:
            if method == "Push":
                call.send(self._heartbeat(chance))
            return refused(call.end(), NOT_PROVED)

    def _fetched(self, entry: Entry) -> wire.FetchReply | None:
        """Return the first answer of a learner; None where it gives none."""
        with entry.channel() as channel:
            try:
                first = next(iter(self._fetch(channel, entry, rank=self._own or 0)))
            except (grpc.RpcError, StopIteration):
                return None
        return wire.FetchReply.FromString(first)

    def _own_counts(self, chance: random.Random) -> str:
        """State counts, and send right parameters, which prove the rank and not the counts."""
        with self._entry.channel() as channel:
            try:
                said = list(self._fetch(channel, rank=self._own))
            except grpc.RpcError:
                return ""
        with self._stream("Push", rank=self._own, incarnation=chance.getrandbits(63)) as call:
            call.send(self._heartbeat(chance))
            for reply in map(wire.FetchReply.FromString, said):
                if reply.HasField("chunk"):
                    reply.chunk.iteration = chance.choice((1, 10**6))
                    call.send(wire.PushRequest(chunk=reply.chunk).SerializeToString())
            call.send(self._heartbeat(chance))
            time.sleep(chance.uniform(0, HOLD_S))
        return ""

    def _own_parameters(self, chance: random.Random) -> str:
        method, message = self._buffer(chance)
        with self._stream(method, rank=self._own, incarnation=chance.getrandbits(63)) as call:
            call.send(message)
            time.sleep(1.0)
        return ""

    def _heartbeat(self, chance: random.Random) -> bytes:
        counts = {"iteration": 10**6, **chance.choice(COUNTS)}
        return wire.PushRequest(heartbeat=wire.Member(**counts)).SerializeToString()

    def _counts(self, chance: random.Random) -> str:
        with self._stream("Push", incarnation=self._incarnation(chance)) as call:
            call.send(self._heartbeat(chance))
            return refused(call.end(), NOT_PROVED)

    def _buffer(self, chance: random.Random) -> tuple[str, bytes]:
        """Return a method, and parameters or gradients for it."""
        value = chance.choice((0.0, -0.0, 1e-45, 1e6, 3e38, 1.0))
        data = np.full(self._size or 100, value, np.float32).tobytes()
        chunk = wire.Chunk(
            iteration=chance.choice((1, 10**9, 2**53)),
            size=len(data),
            crc32=zlib.crc32(data),
            payload=data,
        )
        if "Accumulate" in self._methods:
            return "Accumulate", wire.AccumulateRequest(gradients=chunk).SerializeToString()
        return "Push", wire.PushRequest(chunk=chunk).SerializeToString()

    def _parameters(self, chance: random.Random) -> str:
        method, message = self._buffer(chance)
        with self._stream(method, incarnation=self._incarnation(chance)) as call:
            call.send(message)
            return refused(call.end(), NOT_PROVED)

    def _team(self, chance: random.Random) -> str:
        changes = chance.choice(
            (
                {"rank": 0},
                {"rank": self._learners},
                {"rank": 2**32 - 1},
                {"learners": 2**32 - 1},
                {"learners": 1},
                {"parameters": self._digests[1:]},
            )
        )
        method = chance.choice(self._methods)
        with self._stream(method, **changes) as call:
            return refused(call.end(), MISFIT, NOT_PROVED)

    def _unread(self, chance: random.Random) -> str:
        with self._entry.channel() as channel:
            calls = [
                self._fetch(channel, whole_state=chance.random() < 0.5, rank=self._own or 0)
                for _ in range(8)
            ]
            time.sleep(chance.uniform(0, HOLD_S))
            for call in calls:
                call.cancel()
        return ""

    def _half(self, chance: random.Random) -> str:
        if self._entry.credentials.tls is None:
            method = chance.choice((*self._methods, "Fetch"))
            self._entry.half_messages(_SERVICE + method, 4 << 20, 4, self._hello())
        return ""

    def _leave(self, chance: random.Random) -> str:
        for _ in range(10):
            method = chance.choice(self._methods)
            with self._stream(method, incarnation=self._incarnation(chance)):
                time.sleep(chance.uniform(0, 0.02))
        return ""
