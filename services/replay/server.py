"""gRPC server of a replay shard."""

from __future__ import annotations

import grpc.aio
from typing_extensions import override

from seedbed.rpc.server import ServerThread
from seedbed.rpc.tls import Tls
from seedbed.runtime.threads import Threads
from seedbed.services.replay.servicer import ReplayServicer
from seedbed.services.replay.shard import Shard


class ReplayServer(ServerThread):
    """Server of one shard. `close` stores the inserts under way; see `ServerThread`."""

    def __init__(self, shard: Shard, listen: str, threads: Threads, tls: Tls | None = None) -> None:
        super().__init__(listen, threads, tls)
        self._servicer = ReplayServicer(shard)

    @override
    def _add(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((self._servicer.handler(),))

    @override
    async def _finish(self) -> None:
        self._servicer.close()
