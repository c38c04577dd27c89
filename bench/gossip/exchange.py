"""Cost of an exchange: bytes on the wire against bytes of the parameters."""

import contextlib
import socket
import socketserver
import threading
import time
from concurrent.futures import Future
from typing import Any

import numpy as np

from bench.plan import Plan
from bench.sides import free_port
from seedbed.config import parse_experiment
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout, norm_of
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.v1.gossip_pb2 import Member

# impala_shallow on Pong (620 thousand parameters), and the small network of CartPole.
LONGEST_S = 60.0
SIZES = {"impala_shallow, Pong": 620_550, "mlp, CartPole": 4_675}


class Relay(socketserver.ThreadingTCPServer):
    """Relay that counts the bytes of TCP connections, in both directions."""

    daemon_threads = True

    def __init__(self, to: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.to, self.bytes, self.lock = to, 0, threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Connection(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        try:
            other = socket.create_connection(("127.0.0.1", self.server.to))
        except OSError:
            return  # the peer does not listen yet, and the client tries again
        back = threading.Thread(target=self._pass, args=(other, self.request), daemon=True)
        back.start()
        self._pass(self.request, other)
        back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), target:
            while data := source.recv(1 << 16):
                with self.server.lock:
                    self.server.bytes += len(data)
                target.sendall(data)


def exchange(plan: Plan) -> dict[str, Any]:
    """Two peers over TCP, through a relay that counts."""
    return {name: _wire(size, plan.pick(100, 3)) for name, size in SIZES.items()}


def _wire(size: int, messages: int) -> dict[str, float]:
    ports = [free_port() for _ in range(2)]
    relay = Relay(ports[1])
    listening, through_relay = (
        [f"127.0.0.1:{ports[0]}", f"127.0.0.1:{port}"]
        for port in (ports[1], relay.server_address[1])
    )
    threads = Threads()
    layout = ParameterLayout(("parameters",), ((size,),))
    peers = []
    for rank, addresses in enumerate((through_relay, listening)):
        config = parse_experiment(
            "name: bench\nenvironment: {id: CartPole-v1}\n"
            f"gossip: {{replicas: 2, addresses: {addresses}}}"
        )
        membership = Membership(rank, 2, 1000.0)
        peers.append(GossipTransport(config, membership, layout, threads, PLAIN, Member, Future))
    try:
        for one in peers:
            one.start()
        client = peers[0].clients[1]
        _until(lambda: client.connected)
        values = np.random.default_rng(0).normal(size=size).astype(np.float32)
        peers[1].own_norm = norm_of(values)  # as where it trains the same network
        before = relay.bytes
        for number in range(messages):
            peers[0].broadcast(Message(0, number, values), [1])
            _until(lambda n=number: client.sent == n + 1)
        sent = relay.bytes - before
    finally:
        threads.stopping.set()
        for one in peers:
            one.close()
        threads.join(10)
        relay.shutdown()
        relay.server_close()
    return {
        "parameters_bytes": values.nbytes,
        "wire_bytes": sent / messages,
        "ratio": sent / messages / values.nbytes,
    }


def _until(condition: Any) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > deadline:
            raise SeedbedError(
                ExitCode.INTERNAL, f"gossip: a peer did not answer within {LONGEST_S:g} s"
            )
        time.sleep(0.0005)
