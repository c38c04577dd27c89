"""Which of several learners a group plays for: the emptiest one that has room."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
from dataclasses import dataclass

import grpc
import grpc.aio

from seedbed.rpc import channels
from seedbed.rpc.tls import Tls
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

# A learner answers within milliseconds; one whose node has gone would say nothing for long.
ANSWER_S = 3.0
# Seldom, and each group at a moment of its own, so that few move at once.
LOOK_EVERY_S = 30.0

# A comma before an address; a run directory's path may have others.
_BETWEEN = re.compile(r",(?=unix:|[^,/]+:\d+(?:,|$))")


class NoRoom(Exception):
    """No learner that answers has room, or none answers."""


@dataclass(frozen=True)
class Room:
    """What a learner says of its slots."""

    address: str
    taken: int
    free: int


class Learners:
    """The learners that a group may play for.

    Args:
        addresses: `host:port` or `unix:PATH`, or several of them with commas between. Of one,
            nothing is ever asked.
        name: the group's; who is alike is chosen by it, so that groups that start together spread.
    """

    def __init__(self, addresses: str, name: str, tls: Tls | None = None) -> None:
        self._addresses = _BETWEEN.split(addresses)
        self._name, self._tls = name, tls
        self._failed: set[str] = set()  # until one has worked, or none was left

    def __str__(self) -> str:
        return ", ".join(self._addresses)

    @property
    def several(self) -> bool:
        """Whether there is a choice."""
        return len(self._addresses) > 1

    def failed(self, address: str) -> None:
        """Others are tried before this one."""
        self._failed.add(address)

    def worked(self) -> None:
        """All may be tried again."""
        self._failed.clear()

    async def choose(self, environments: int) -> str:
        """The address for a group of so many environments.

        Raises:
            NoRoom: with what each of them said; after that all are tried again.
        """
        if not self.several:
            return self._addresses[0]
        rooms, silent = await self._ask()
        fit = [r for r in rooms if r.free >= environments and r.address not in self._failed]
        if fit:
            return min(fit, key=self._order).address
        said = [f"{r.address} has {r.free} of {r.taken + r.free} slots free" for r in rooms]
        failed, self._failed = self._failed, set()
        also = f"; tried just now: {', '.join(sorted(failed))}" if failed else ""
        raise NoRoom(
            f"no learner has room for {environments} environments: {'; '.join(said + silent)}{also}"
        )

    async def wait_for_better(self, address: str, environments: int) -> None:
        """Return once a group of `address` should move: there is a learner with room that has at
        least two such groups less. Two, so that the move leaves no reason to move back.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_S * random.uniform(0.5, 1.5))
            if not self.several:
                continue
            rooms, _ = await self._ask()
            own = [room.taken for room in rooms if room.address == address]
            fit = [room.taken for room in rooms if room.free >= environments]
            if own and fit and min(fit) + 2 * environments <= own[0]:
                return

    def _order(self, room: Room) -> tuple[int, bytes]:
        return room.taken, hashlib.sha256(f"{self._name} {room.address}".encode()).digest()

    async def _ask(self) -> tuple[list[Room], list[str]]:
        """Those that answer, and what became of the others."""
        answers = await asyncio.gather(*(self._ask_one(address) for address in self._addresses))
        rooms = [answer for answer in answers if isinstance(answer, Room)]
        return rooms, [answer for answer in answers if isinstance(answer, str)]

    async def _ask_one(self, address: str) -> Room | str:
        try:
            async with channels.aio_channel(address, self._tls) as channel:
                stub = wire_grpc.InferenceStub(channel)
                reply = await stub.GetStatus(wire.GetStatusRequest(), timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            cause = (error.details() or "").rpartition("last error: ")[2]
            return f"{address} does not answer ({error.code().name}: {cause})"
        slots = json.loads(reply.json)["slots"]
        return Room(address, slots["all"] - slots["free"], slots["free"])
