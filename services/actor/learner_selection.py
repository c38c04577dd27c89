"""Selection of the learner that a group connects to: the least loaded one with free slots."""

import asyncio
import hashlib
import json
import random
import re
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
    """Slots of one learner.

    Attributes:
        address: address of the learner.
        taken: slots that are taken.
        free: slots that are free.
    """

    address: str
    taken: int
    free: int


class LearnerSelection:
    """The learners that a group may connect to.

    Args:
        addresses: `host:port` or `unix:PATH`, or several of them separated by commas. A single
            learner is never asked for its status.
        name: name of the group. Breaks ties between equally loaded learners, so that groups that
            start together spread out.
        credentials: credentials of this process.
    """

    def __init__(self, addresses: str, name: str, credentials: Credentials = PLAIN) -> None:
        self._addresses = _SEPARATOR.split(addresses)
        self._name, self._credentials = name, credentials
        # Learners that failed since one worked, or since all of them were given up.
        self._failed: set[str] = set()

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
        if not self.several:
            return self._addresses[0]
        answered, silent = await self._ask()
        fit = [s for s in answered if s.free >= num_envs and s.address not in self._failed]
        if fit:
            return min(fit, key=self._order).address
        causes = [f"{s.address} has {s.free} of {s.taken + s.free} slots free" for s in answered]
        failed, self._failed = self._failed, set()
        also = f"; tried just now: {', '.join(sorted(failed))}" if failed else ""
        raise NoCapacity(
            f"no learner has room for {counted(num_envs, 'environment')}: "
            f"{'; '.join(causes + silent)}{also}"
        )

    async def wait_for_less_loaded(self, address: str, num_envs: int) -> None:
        """Wait until a group of the learner at `address` should move to another learner.

        That is so when another learner has free slots and at least two such groups less. One group
        less would be a reason to move back.
        """
        while True:
            await asyncio.sleep(POLL_INTERVAL_S * random.uniform(0.5, 1.5))
            if not self.several:
                continue
            answered, _ = await self._ask()
            own = next((s for s in answered if s.address == address), None)
            fit = [s.taken for s in answered if s.free >= num_envs]
            if own is not None and fit and min(fit) + 2 * num_envs <= own.taken:
                return

    def _order(self, status: SlotStatus) -> tuple[int, bytes]:
        tie_break = hashlib.sha256(f"{self._name} {status.address}".encode()).digest()
        return status.taken, tie_break

    async def _ask(self) -> tuple[list[SlotStatus], list[str]]:
        """Return the slots of each learner that answers, and why the others do not."""
        answers = await asyncio.gather(*(self._ask_one(address) for address in self._addresses))
        answered = [answer for answer in answers if isinstance(answer, SlotStatus)]
        return answered, [answer for answer in answers if isinstance(answer, str)]

    async def _ask_one(self, address: str) -> SlotStatus | str:
        """Return the slots of a learner, or why it is silent."""
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
        return SlotStatus(address, slots["all"] - slots["free"], slots["free"])
