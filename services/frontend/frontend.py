"""Front end process: a gRPC server whose streams are relayed to the learner."""

import threading

import grpc.aio

from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.server import ServerThread
from seedbed.rpc.step_codec import inference_handlers
from seedbed.runtime.signals import on_stop_signals
from seedbed.runtime.threads import Threads
from seedbed.services.frontend.relay import Relay


class FrontendServer(ServerThread):
    """Server of a relay.

    Args:
        relay: passes the streams on.
        listen: `host:port`.
        threads: threads of the process.
        credentials: credentials of this process, which judge the calls.
    """

    def __init__(
        self, relay: Relay, listen: str, threads: Threads, credentials: Credentials = PLAIN
    ) -> None:
        super().__init__(listen, threads, credentials)
        self._relay = relay

    def _add(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((inference_handlers(self._relay),))


def run_frontend(path: str, number: int, listen: str, credentials: Credentials) -> None:
    """Serve until a signal. Main thread only.

    Args:
        path: path of the learner's socket for front ends.
        number: number of this front end, from 0.
        listen: `host:port`.
        credentials: credentials of this process.

    Raises:
        SeedbedError: BIND, or the failure of the server.
    """
    threads = Threads()
    stopped = threading.Event()
    on_stop_signals(lambda _: stopped.set())
    server = FrontendServer(
        Relay(path, number, channels.MAX_MESSAGE_BYTES), listen, threads, credentials
    )
    server.start()
    while not (stopped.wait(0.2) or threads.stopping.is_set()):
        pass
    server.close()
    server.join()
    if threads.failure is not None:
        raise threads.failure
