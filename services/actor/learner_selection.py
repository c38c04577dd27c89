"""Selection of the learner that a group connects to: the least loaded one with free slots."""

import asyncio
import hashlib
import json
import random
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.reconnect import details_of
from seedbed.runtime.text import counted
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

if TYPE_CHECKING:  # The image of the actor has nothing of the telemetry but the type.
    from seedbed.telemetry.status import RunStatus

# A learner answers within milliseconds, but one whose node is gone does not answer at all.
STATUS_TIMEOUT_S = 3.0
# Long, and random for each group, so that few groups move at once.
POLL_INTERVAL_S = 30.0

# The comma before an address. A path of a run directory may contain other commas.
_SEPARATOR = re.compile(r",(?=unix:|[^,/]+:\d+(?:,|$))")


class NoCapacity(Exception):
    """No learner that answers has enough free slots."""


@dataclass(frozen=True)
class SlotStatus:
    """Slots of one learner, as a group may reach it.

    Attributes:
        address: of the learner, or of one of its front ends.
        taken: slots of the learner that are taken.
        free: slots of the learner that are free.
        relayed: environments of the front end; 0 without one.
        learner: address of the learner.
    """

    address: str
    taken: int
    free: int
    relayed: int
    learner: str


class LearnerSelection:
    """The learners that a group may connect to.

    Args:
        addresses: `host:port` or `unix:PATH`, or several of them separated by commas. A single
            learner at a unix socket is never asked for its status.
        name: name of the group. Breaks ties between equally loaded learners, so that groups that
            start together spread out.
        credentials: credentials of this process.
    """

    def __init__(self, addresses: str, name: str, credentials: Credentials = PLAIN) -> None:
        self._addresses = _SEPARATOR.split(addresses)
        self._name, self._credentials = name, credentials
        # Learners that failed since one worked, or since all of them were given up.
        self._failed: set[str] = set()
        self._has_frontends = False  # the only learner

    def __str__(self) -> str:
        return ", ".join(self._addresses)

    @property
    def several(self) -> bool:
        """Return whether there is more than one learner."""
        return len(self._addresses) > 1

    def on_failure(self, address: str) -> None:
        """Prefer other learners to this one."""
        self._failed.add(address)

    def on_success(self) -> None:
        """Allow every learner again."""
        self._failed.clear()

    async def choose(self, num_envs: int) -> str:
        """Return the address of the learner for a group of `num_envs` environments.

        Raises:
            NoCapacity: with the answer of each learner. The next call allows every learner again.
        """
        first = self._addresses[0]
        if not self.several and first.startswith("unix:"):
            return first
        answered, silent = await self._ask()
        self._has_frontends = any(status.address != status.learner for status in answered)
        if not self.several and not self._has_frontends:
            return first  # without front ends; where it is silent, the stream says why
        fit = [s for s in answered if s.free >= num_envs and s.address not in self._failed]
        if fit:
            return min(fit, key=self._order).address
        if not self.several and answered[0].free >= num_envs:
            self._failed.clear()
            return first  # until its front ends are back
        causes = [f"{s.address} has {s.free} of {s.taken + s.free} slots free" for s in answered]
        failed, self._failed = self._failed, set()
        also = f"; tried just now: {', '.join(sorted(failed))}" if failed else ""
        raise NoCapacity(
            f"no learner has room for {counted(num_envs, 'environment')}: "
            f"{'; '.join(causes + silent)}{also}"
        )

    async def wait_for_less_loaded(self, address: str, num_envs: int) -> None:
        """Wait until a group of the learner at `address` should move to another learner.

        That is so when another learner has free slots and at least two such groups less, or another
        front end of this one has. One group less would be a reason to move back. It is so, too,
        when the group had to go past the front ends, and one of them is back.
        """
        while True:
            await asyncio.sleep(POLL_INTERVAL_S * random.uniform(0.5, 1.5))
            if not self.several and address == self._addresses[0]:
                if self._has_frontends and await self._is_frontend_back(address):
                    return
                continue
            answered, _ = await self._ask()
            own = next((s for s in answered if s.address == address), None)
            if own is None:
                continue
            fit = [s.taken for s in answered if s.free >= num_envs]
            others = [s.relayed for s in answered if s.learner == own.learner]
            if fit and min(fit) + 2 * num_envs <= own.taken:
                return
            if min(others) + 2 * num_envs <= own.relayed:
                return

    async def _is_frontend_back(self, learner: str) -> bool:
        """Return whether a front end of a learner takes connections."""
        ways = await self._ask_one(learner)
        for way in ways if isinstance(ways, list) else ():
            if way.address == learner:
                continue
            async with channels.aio_channel(way.address, self._credentials) as channel:
                with suppress(TimeoutError):
                    await asyncio.wait_for(channel.channel_ready(), STATUS_TIMEOUT_S)
                    return True
        return False

    def _order(self, status: SlotStatus) -> tuple[int, int, bytes]:
        tie_break = hashlib.sha256(f"{self._name} {status.address}".encode()).digest()
        return status.taken, status.relayed, tie_break

    async def _ask(self) -> tuple[list[SlotStatus], list[str]]:
        """Return the slots of each learner that answers, and why the others do not."""
        answers = await asyncio.gather(*(self._ask_one(address) for address in self._addresses))
        answered = [status for answer in answers if isinstance(answer, list) for status in answer]
        return answered, [answer for answer in answers if isinstance(answer, str)]

    async def _ask_one(self, address: str) -> list[SlotStatus] | str:
        """Return the ways to a learner, its front ends where it has some, or why it is silent."""
        try:
            async with channels.aio_channel(address, self._credentials) as channel:
                stub = wire_grpc.InferenceStub(channel)
                reply = await stub.GetStatus(
                    wire.GetStatusRequest(),
                    metadata=self._credentials.metadata(),
                    timeout=STATUS_TIMEOUT_S,
                )
        except grpc.aio.AioRpcError as error:
            cause = details_of(error).rpartition("last error: ")[2]
            return f"{address} does not answer ({error.code().name}: {cause})"
        status: RunStatus = json.loads(reply.json)
        slots = status["slots"]
        taken, free = slots["all"] - slots["free"], slots["free"]
        frontends = status.get("frontends")
        if not frontends:
            return [SlotStatus(address, taken, free, 0, address)]
        host = address.rpartition(":")[0]
        return [
            SlotStatus(f"{host}:{each['port']}", taken, free, each["environments"], address)
            for each in frontends
        ]
