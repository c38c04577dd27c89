"""gRPC server of the learner, which actors connect to, and its server of local streams."""

from collections.abc import Mapping

import grpc.aio

from seedbed.rpc.credentials import PLAIN, Credentials, Denial
from seedbed.rpc.local.server import LocalMethod
from seedbed.rpc.local.steps import act_method
from seedbed.rpc.server import ServerThread
from seedbed.rpc.step_codec import inference_handlers
from seedbed.runtime.threads import Threads
from seedbed.services.learner.sessions.servicer import InferenceServicer


class InferenceServer(ServerThread):
    """Server of actor streams, over gRPC and local.

    Args:
        servicer: answers the streams.
        listen: `host:port` or `unix:PATH`.
        threads: threads of the process, which fail with this server.
        credentials: credentials of this process.
    """

    share = 0.75  # gossip has the rest, where there is some

    def __init__(
        self,
        servicer: InferenceServicer,
        listen: str,
        threads: Threads,
        credentials: Credentials = PLAIN,
    ) -> None:
        super().__init__(listen, threads, credentials)
        self._servicer = servicer

    def end_streams(self, reason: str, over: bool) -> None:
        """End every stream, now and later; see `InferenceServicer.finish`. Any thread."""
        self._soon(self._servicer.finish, reason, over)

    def _on_denied(self, denial: Denial) -> None:
        self._servicer.on_denied(denial)

    def _add(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers(
            (inference_handlers(self._servicer.act, self._servicer.get_status),)
        )

    def _local_methods(self) -> Mapping[str, LocalMethod]:
        if not self._servicer.takes_local_streams:
            return {}
        return act_method(self._servicer.act, self.max_message_bytes)

    async def _begin(self) -> None:
        # It runs until the loop ends, because late answers are announced during the end, too.
        self._spawn(self._servicer.housekeeping())
