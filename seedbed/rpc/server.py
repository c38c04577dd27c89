"""A gRPC server in a thread with an event loop of its own."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from seedbed.rpc import channels
from seedbed.rpc.access import AccessInterceptor
from seedbed.rpc.credentials import PLAIN, Credentials, Denial
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.local.server import LocalMethod, LocalServer
from seedbed.runtime import budget
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads

log = logging.getLogger(__name__)

# Longest wait for the server to listen.
START_S = 60.0
# Time for peers to receive why their streams end.
GOODBYE_S = 3.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class ServerThread:
    """Server that runs until `close`. Subclasses implement `_add`, `_begin` and `_finish`.

    Args:
        listen: `host:port` or `unix:PATH`.
        threads: threads of the process, which fail with this server.
        credentials: credentials of this process.
        name: name of the thread.

    Attributes:
        share: part of the process's connections (`seedbed.runtime.budget`) that this server takes.
        address: address that peers connect to; None until the server listens.
        max_message_bytes: largest message that the server receives; set it before `start`.
        also_listen: further addresses to listen on; set them before `start`.
        local: servers of local streams.
    """

    share = 1.0

    def __init__(
        self,
        listen: str,
        threads: Threads,
        credentials: Credentials = PLAIN,
        name: str = "wire",
    ) -> None:
        self._listen, self._name = listen, name
        self._threads, self._credentials = threads, credentials
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = asyncio.Event()
        # `close` may be called before the loop runs.
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []
        self._health = health.aio.HealthServicer()
        self._listening = threading.Event()
        self.address: str | None = None
        self.max_message_bytes = channels.MAX_MESSAGE_BYTES
        self.also_listen: Sequence[str] = ()
        self.local: list[LocalServer] = []

    def _add(self, server: grpc.aio.Server) -> None:
        """Add servicers. Called in the event loop, before the server listens."""
        raise NotImplementedError

    def _local_methods(self) -> Mapping[str, LocalMethod]:
        """Return the methods that processes of this machine may call through shared memory."""
        return {}

    def _on_denied(self, denial: Denial) -> None:
        """Count a call that was refused for its credential. Called in the event loop."""

    async def _begin(self) -> None:
        """Start further tasks. Called once the server listens."""

    async def _finish(self) -> None:
        """End the open streams. Called before the server stops listening."""

    def start(self, serving: bool = True) -> str:
        """Listen, and return the address that peers connect to.

        Args:
            serving: whether the health service reports SERVING from the start; see
                `set_serving`.

        Raises:
            SeedbedError: BIND, or the failure of another thread meanwhile.
        """
        self._threads.start(self._name, lambda: self._run(serving))
        if not self._listening.wait(START_S):
            raise SeedbedError(
                ExitCode.THREAD_STUCK, f"gRPC did not start on {self._listen} within {START_S:g} s"
            )
        if self._threads.failure is not None:
            raise self._threads.failure
        assert self.address is not None
        return self.address

    def set_serving(self) -> None:
        """Make the health service report SERVING from now on. Any thread."""
        self._soon(lambda: self._spawn(self._health.set("", SERVING)))

    def close(self) -> None:
        """Stop listening, after peers have received why their streams end. Any thread."""
        self._closed = True
        self._soon(self._closing.set)

    def join(self) -> None:
        """Wait for the thread of the server, after `close`; its goodbye is bounded."""
        self._threads.join_one(self._name, GOODBYE_S + 1)

    def _soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop, if the loop still runs. Any thread."""
        if self._loop is not None:
            # The loop may end meanwhile.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *arguments)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task beside the server. Its failure is one of this thread. Event loop only."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._threads.fail(self._name, error)

    def _connections(self) -> int:
        """Return how many connections each socket takes, the one of local streams included."""
        addresses = (self._listen, *self.also_listen)
        sockets = len(addresses) + any(map(socket_of, addresses))
        return budget.connections(self.share, sockets)

    def _listen_locally(self) -> None:
        """Listen for streams of this machine, beside the first unix socket of gRPC."""
        methods = self._local_methods()
        path = next(filter(None, map(socket_of, (self._listen, *self.also_listen))), None)
        if not methods or path is None:
            return
        local = LocalServer(methods, self._credentials, self._on_denied, self._connections())
        try:
            local.listen(path)
        except OSError as error:
            text = "processes of this machine use gRPC, not shared memory: cannot listen on %s: %s"
            log.warning(text, path, error)
            return
        self.local.append(local)

    def _run(self, serving: bool) -> None:
        try:
            channels.run(self._serve(serving))
        except BaseException as error:
            # Before `_listening` is set, because `start` reads the failure then.
            self._threads.fail(self._name, error)
        finally:
            self._listening.set()

    async def _serve(self, serving: bool) -> None:
        self._loop = asyncio.get_running_loop()
        # Without a credential too, because it bounds and refuses requests that cannot be read.
        guard = AccessInterceptor(self._credentials, self._on_denied)
        connections = self._connections()
        server = channels.aio_server([guard], self.max_message_bytes, connections)
        log.info(
            "%s: at most %d connections on each socket, of %d descriptors (ulimit -n)",
            self._name, connections, budget.descriptor_limit(),
        )  # fmt: skip
        self._add(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.address = channels.bind(server, self._listen, self._credentials)
        for address in self.also_listen:
            channels.bind(server, address, self._credentials)
        try:
            # Right after gRPC's own socket is there, so that clients find both.
            self._listen_locally()
            await server.start()
            await self._health.set("", SERVING if serving else NOT_SERVING)
            await self._begin()
            self._listening.set()
            # Read after `_loop` was set, so that a `close` meanwhile has set one of the two.
            if not self._closed:
                await self._closing.wait()
            await self._health.set("", NOT_SERVING)
            await self._finish()
        finally:
            for local in self.local:
                await local.stop(GOODBYE_S)
            # Without it, gRPC's own thread keeps the process from ending.
            await server.stop(GOODBYE_S)
