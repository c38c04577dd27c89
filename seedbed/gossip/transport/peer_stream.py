"""Stream to another learner, opened again whenever it ends."""

import logging
from typing import Any

import grpc
import grpc.aio

from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.hello import hello_metadata
from seedbed.rpc.reconnect import Attempts, describe, details_of
from seedbed.rpc.stream import Metadata, UnreadableMessage
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

WELCOME_S = 10.0
# Status codes of a peer that does not accept this learner.
REJECTIONS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)


class PeerStream:
    """Stream to a peer. A subclass opens it and serves it, in `_serve`.

    Event loop only, except for reading the attributes.

    Attributes:
        connected: whether the stream is open.
        sent_bytes: bytes of parameters, gradients or segments sent.
        rejection: reason why the peer does not accept this learner; or empty.
        refused: answers of the peer that were refused.
    """

    def __init__(
        self, rank: int, address: str, hello: wire.GossipHello, credentials: Credentials
    ) -> None:
        self.rank, self.address = rank, address
        self._hello, self._credentials = hello, credentials
        self.connected = False
        self.sent_bytes = 0
        self.rejection = ""
        self.refused = 0

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        last_cause = ""
        async for _ in self._attempts():
            cause = "the stream ended"
            try:
                async with channels.aio_channel(self.address, self._credentials) as channel:
                    await self._serve(channel, wire_grpc.GossipStub(channel))
            except grpc.aio.AioRpcError as error:
                cause = describe(error)
                self.rejection = self._refusal(error) if error.code() in REJECTIONS else ""
            except ValueError as error:
                self.refused += 1
                cause = f"its parameters are refused: {error}"
            except UnreadableMessage as error:
                self.refused += 1
                cause = str(error)
            except (TimeoutError, ConnectionError) as error:
                cause = str(error) or "no answer"
            finally:
                self.connected = False
                self._on_end()
            if cause != last_cause:
                last_cause = cause
                log.info("learner %d at %s: %s", self.rank, self.address, cause)

    def _metadata(self) -> Metadata:
        """Return the metadata of a call to the peer."""
        return hello_metadata(self._hello, self._credentials)

    def _attempts(self) -> Attempts:
        return Attempts()

    async def _serve(self, channel: grpc.aio.Channel, stub: Any) -> None:
        """Open the stream and serve it until it ends.

        Raises:
            grpc.aio.AioRpcError: the status of the stream.
            ValueError: the peer's parameters do not fit this learner's.
            TimeoutError: no answer.
            ConnectionError: an answer that breaks the protocol.
        """
        raise NotImplementedError

    def _on_end(self) -> None:
        """Forget what belongs to the stream that has ended."""

    def _refusal(self, error: grpc.RpcError) -> str:
        return f"learner {self.rank} at {self.address} refused this one: {details_of(error)}"
