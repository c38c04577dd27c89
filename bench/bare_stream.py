"""Child: a grpcio stream server that does nothing: any bytes in, as many zeros out as asked for."""

import asyncio
import threading
import time
from typing import Any

import grpc

from seedbed.rpc import channels

SERVICE, METHOD = "seedbed.v1.Inference", "Act"
PATH = f"/{SERVICE}/{METHOD}"


class BareServer:
    """As the learner's: `grpc.aio` in a thread of its own, with the same options.

    Args:
        listen: `unix:PATH`.
        reply_bytes: Size of an answer.
        replies: Answers to each message.
        fast_loop: Run uvloop, as replay shards do, and not asyncio's own loop.
        welcomes: Answer once before the first message.
    """

    def __init__(
        self,
        listen: str,
        reply_bytes: int,
        replies: int = 1,
        fast_loop: bool = False,
        welcomes: bool = False,
    ) -> None:
        self._reply, self._replies, self._welcomes = bytes(reply_bytes), replies, welcomes
        listening = threading.Event()
        run = channels.run if fast_loop else asyncio.run
        serve = self._serve(listen, listening)
        threading.Thread(target=lambda: run(serve), daemon=True).start()
        if not listening.wait(60):
            raise TimeoutError(f"not listening on {listen} within 60 s")

    async def _act(self, _: Any, context: Any) -> None:
        read, write, reply = context.read, context.write, self._reply
        if self._welcomes:
            await write(reply)
        while await read() is not grpc.aio.EOF:
            for _ in range(self._replies):
                await write(reply)

    async def _serve(self, listen: str, listening: threading.Event) -> None:
        server = channels.aio_server()
        # Without (de)serializers a message is the bytes that came.
        handler: Any = grpc.stream_stream_rpc_method_handler(self._act)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})]
        )
        channels.bind(server, listen)
        await server.start()
        listening.set()
        await server.wait_for_termination()

    def usage(self) -> dict[str, Any]:
        """Return CPU seconds so far."""
        return {"cpu_s": time.process_time()}
