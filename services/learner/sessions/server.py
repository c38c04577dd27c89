"""gRPC server of the learner, which actors connect to, and its server of local streams."""

import logging

import grpc.aio

from seedbed.rpc.credentials import PLAIN, Credentials, Denial
from seedbed.rpc.local_streams import LocalServer, socket_of
from seedbed.rpc.server import ServerThread
from seedbed.rpc.step_codec import inference_handlers
from seedbed.runtime.threads import Threads
from seedbed.services.learner.sessions.servicer import InferenceServicer

log = logging.getLogger(__name__)


class InferenceServer(ServerThread):
    """Server of actor streams, over gRPC and local.

    Args:
        servicer: answers the streams.
        listen: `host:port` or `unix:PATH`.
        threads: threads of the process, which fail with this server.
        credentials: credentials of this process.

    Attributes:
        frontends: path of the socket for front ends, in a folder that no other user may enter;
            None without any. Set it before `start`.
    """

    def __init__(
        self,
        servicer: InferenceServicer,
        listen: str,
        threads: Threads,
        credentials: Credentials = PLAIN,
    ) -> None:
        super().__init__(listen, threads, credentials)
        self._servicer = servicer
        self.frontends: str | None = None

    def end_streams(self, reason: str, over: bool) -> None:
        """End every stream, now and later; see `InferenceServicer.finish`. Any thread."""
        self._soon(self._servicer.finish, reason, over)

    def _on_denied(self, denial: Denial) -> None:
        self._servicer.on_denied(denial)

    def _add(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((inference_handlers(self._servicer),))

    async def _begin(self) -> None:
        self._listen_locally()
        if self.frontends is not None:
            relayed = self._local_server(PLAIN, of_frontends=True)
            relayed.listen(self.frontends)
            self.local.append(relayed)
        # It runs until the loop ends, because late answers are announced during the end, too.
        self._spawn(self._servicer.housekeeping())

    def _listen_locally(self) -> None:
        """Listen for streams of this machine, beside each unix socket of gRPC."""
        if not self._servicer.takes_local_streams:
            return
        addresses = (self._listen, *self.also_listen)
        path = next(filter(None, map(socket_of, addresses)), None)
        if path is None:
            return
        local = self._local_server(self._credentials)
        try:
            local.listen(path)
        except OSError as error:
            log.warning(
                "actors of this machine use gRPC, not shared memory: cannot listen on %s: %s",
                path,
                error,
            )
            return
        self.local.append(local)

    def _local_server(self, credentials: Credentials, of_frontends: bool = False) -> LocalServer:
        return LocalServer(
            lambda context: self._servicer.Act(None, context),
            credentials,
            self._servicer.on_denied,
            self.max_message_bytes,
            of_frontends,
        )
