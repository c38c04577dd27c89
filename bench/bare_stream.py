"""Child: a grpcio stream server that does nothing: any bytes in, E × 4 bytes out."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from typing import Any

import grpc

from bench.child import serve
from seedbed.rpc import channels

SERVICE, METHOD = "seedbed.v1.Inference", "Act"


class BareServer:
    """As the learner's: `grpc.aio` in a thread of its own, with the same options."""

    def __init__(self, listen: str, num_envs: int) -> None:
        self._listen = listen
        self._reply = bytes(4 * num_envs)
        self._listening = threading.Event()
        self._messages = 0

    async def _act(self, _: Any, context: Any) -> None:
        read, write, reply = context.read, context.write, self._reply
        while await read() is not grpc.aio.EOF:
            self._messages += 1
            await write(reply)

    async def _serve(self) -> None:
        server = channels.aio_server()
        # Without (de)serializers a message is the bytes that came.
        handler: Any = grpc.stream_stream_rpc_method_handler(self._act)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})]
        )
        channels.bind(server, self._listen)
        await server.start()
        self._listening.set()
        await server.wait_for_termination()

    def start(self) -> None:
        """Listen."""
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        if not self._listening.wait(60):
            raise TimeoutError(f"not listening on {self._listen} within 60 s")

    def usage(self) -> dict[str, Any]:
        """CPU seconds and messages so far."""
        return {"cpu_s": time.process_time(), "messages": self._messages}


def main() -> None:
    """Serve `usage`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("listen")
    parser.add_argument("num_envs", type=int)
    args = parser.parse_args()
    server = BareServer(args.listen, args.num_envs)
    server.start()
    serve({"usage": server.usage})


if __name__ == "__main__":
    main()
