"""Server of local streams."""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from seedbed.rpc.credentials import Credentials, Denial
from seedbed.rpc.local.packets import LARGEST_PACKET, opened_by
from seedbed.rpc.local.server_stream import Ended, LocalServerStream
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)

_BACKLOG = 1024
# Longest wait for the first packet of a client.
OPEN_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class LocalMethod:
    """A method of a local server.

    Attributes:
        serve: serves a stream.
        stream: kind of its streams.
        block: from the descriptor of a client's memory, which it closes, to the memory.
    """

    serve: Callable[[Any], Awaitable[None]]
    stream: type[LocalServerStream]
    block: Callable[[int], Any]


class LocalServer:
    """Server of local streams. Event loop only.

    Args:
        methods: methods by their paths.
        credentials: judge the streams, as they judge gRPC's.
        on_denied: called with each denial.
        most_streams: streams that are open at a time.
    """

    def __init__(
        self,
        methods: Mapping[str, LocalMethod],
        credentials: Credentials,
        on_denied: Callable[[Denial], None],
        most_streams: int = 64,
    ) -> None:
        self._methods, self._credentials, self._on_denied = methods, credentials, on_denied
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._path = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._most_streams = most_streams
        self._log = PeerLog(log)

    def listen(self, path: str) -> None:
        """Listen on a path, on which nothing listens any more.

        Raises:
            OSError: the path cannot be bound.
        """
        self._path = path
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                # Of a server that was killed, since gRPC's own socket is bound already.
                Path(path).unlink()
            listener.bind(path)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left
            return
        if len(self._tasks) >= self._most_streams:
            text = "refused a local stream: %d are open, of at most %d"
            self._log.warning("most", text, len(self._tasks), self._most_streams)
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as opened:
            opened.enter_context(connection)
            try:
                path, method, stream = await self._open(connection)
            except (TimeoutError, ValueError, OSError, struct.error) as error:
                text = printable(str(error) or "nothing came")
                self._log.warning("open", "a local stream cannot be opened: %s", text)
                return
            opened.callback(stream.close)
            try:
                caller = self._credentials.judge(path, stream.invocation_metadata(), {})
                if isinstance(caller, Denial):
                    self._on_denied(caller)
                    await stream.abort(caller.code, caller.message)
                await method.serve(stream)
                await stream.finish()
            except (Ended, asyncio.CancelledError):
                return
            except Exception:
                log.exception("a local stream ends")
                with contextlib.suppress(Ended):
                    await stream.abort(grpc.StatusCode.UNKNOWN, "an error of this process")

    async def _open(self, connection: socket.socket) -> tuple[str, LocalMethod, LocalServerStream]:
        """Return the path, the method and the context of a first packet."""
        readable = asyncio.Event()
        self._loop.add_reader(connection, readable.set)
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                await readable.wait()
        finally:
            self._loop.remove_reader(connection)
        data, descriptors, _, _ = socket.recv_fds(connection, LARGEST_PACKET, 2)
        try:
            if len(descriptors) != 1:
                raise ValueError(f"{len(descriptors)} descriptors in a first packet")
            path, metadata = opened_by(data)
            if path not in self._methods:
                raise ValueError(f"no method {path!r} is served")
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        method = self._methods[path]
        block = method.block(descriptors[0])
        return path, method, method.stream(connection, block, metadata, self._path)

    async def stop(self, grace_s: float) -> None:
        """Stop listening, and end the streams that have not ended after a grace."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            with contextlib.suppress(FileNotFoundError):
                Path(self._path).unlink()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
