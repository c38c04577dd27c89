"""Access of calls to a server: the credential is judged before a message is read."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from typing_extensions import override

from seedbed.rpc.credentials import Credentials, Denial
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Caller

log = logging.getLogger(__name__)

_OPEN = "/grpc.health.v1.Health/"
# Longest wait for the rest of a request whose headers have come.
_REQUEST_S = 2.0


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls whose credential does not allow the method.

    Methods with a single request become streams of one message on the server's side, which is the
    same on the wire, because gRPC would read the message first otherwise. Such requests of one
    caller are read one at a time, which bounds what half-sent ones take.
    """

    def __init__(
        self,
        credentials: Credentials,
        on_denied: Callable[[Denial], None] = lambda _: None,
    ) -> None:
        self._credentials, self._on_denied = credentials, on_denied
        self._warnings = PeerLog(log)
        # One for all calls that need no credential, and one for each credential.
        self._turns: defaultdict[Caller | None, asyncio.Lock] = defaultdict(asyncio.Lock)

    @override
    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        method: str = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None

        async def serve(requests: Any, context: Any) -> None:
            caller: Caller | Denial | None = None
            if not method.startswith(_OPEN):
                caller = self._credentials.judge(
                    method, context.invocation_metadata(), context.auth_context()
                )
            if isinstance(caller, Denial):
                self._on_denied(caller)
                peer, message = printable(context.peer()), printable(caller.message)
                self._warnings.warning(caller.code.name, "refused %s: %s", peer, message)
                await context.abort(caller.code, caller.message)
                return
            turn = self._turns[caller]
            if handler.request_streaming and handler.response_streaming:
                await handler.stream_stream(requests, context)
            elif handler.request_streaming:
                await context.write(await handler.stream_unary(requests, context))
            elif handler.response_streaming:
                await handler.unary_stream(await self._read_one(context, turn), context)
            else:
                request = await self._read_one(context, turn)
                await context.write(await handler.unary_unary(request, context))

        return grpc.stream_stream_rpc_method_handler(
            serve, handler.request_deserializer, handler.response_serializer
        )

    async def _read_one(self, context: Any, turn: asyncio.Lock) -> Any:
        """Read the request of a method that has one, in its turn."""
        try:
            async with turn, asyncio.timeout(_REQUEST_S):
                request = await context.read()
        except TimeoutError:
            late = f"the request did not come within {_REQUEST_S:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, late)
        except DecodeError as error:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be read: {error}"
            )
        if request is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is missing")
        return request
