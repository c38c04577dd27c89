"""The one place where gRPC channels and servers are made, each option with its reason."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
import uvloop

from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

# 1: frames of a group, E * 72 * 96 * 3 bytes at E = 1,024 is 21 MB; 64 MB leaves room and still
# bounds what a broken peer can make the other side allocate.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_Result = TypeVar("_Result")

_COMMON: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Frames do not compress in the time of a step.
    ("grpc.default_compression_algorithm", 0),
    # HTTP/2 flow control probes the bandwidth-delay product; off, a window of one large message
    # is enough for lock-step traffic, and small messages save a round of pings.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    ("grpc.http2.max_frame_size", 4 * 1024 * 1024),
]

_CLIENT: list[tuple[str, Any]] = [
    *_COMMON,
    # A peer that vanished without a FIN (node gone, cable cut) is noticed within 30 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Each group has a connection of its own: one connection's flow control and its one writer
    # would make the groups of an actor wait for each other.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # An environment's http_proxy must not catch traffic inside a cluster.
    ("grpc.enable_http_proxy", 0),
]

_SERVER: list[tuple[str, Any]] = [
    *_COMMON,
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Accept the clients' 20 s pings; the default of five minutes answers with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Two learners on one port would each get half of the actors.
    ("grpc.so_reuseport", 0),
]


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """As `asyncio.run`, with uvloop's event loop, which takes a quarter off a message's CPU."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def channel(address: str, tls: Tls | None = None) -> grpc.Channel:
    """A channel to `host:port` or `unix:PATH`, with a connection of its own."""
    if tls is not None:
        return grpc.secure_channel(address, tls.of_client(), options=_CLIENT)
    return grpc.insecure_channel(address, options=_CLIENT)


def aio_channel(address: str, tls: Tls | None = None) -> grpc.aio.Channel:
    """As `channel`, for an event loop."""
    if tls is not None:
        return grpc.aio.secure_channel(address, tls.of_client(), options=_CLIENT)
    return grpc.aio.insecure_channel(address, options=_CLIENT)


def aio_server(interceptors: Sequence[grpc.aio.ServerInterceptor] = ()) -> grpc.aio.Server:
    """An asyncio server: its concurrency is bounded by no thread pool."""
    return grpc.aio.server(options=_SERVER, interceptors=list(interceptors))


def _answers(path: str) -> bool:
    """Whether a process listens on a unix socket; one that was killed leaves the path behind."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path.removeprefix("//"))
        except OSError:
            return False
        return True


def bind(server: grpc.aio.Server, address: str, tls: Tls | None = None) -> str:
    """Listen on `host:port` (port 0: any) or `unix:PATH`; return the address to connect to.

    Raises:
        SeedbedError: BIND, naming the address.
    """
    if address.startswith("unix:") and _answers(address.removeprefix("unix:")):
        # gRPC would take the path away from whoever listens there, without a word.
        raise SeedbedError(ExitCode.BIND, f"cannot listen on {address}: another process does")
    try:
        if tls is not None:
            port = server.add_secure_port(address, tls.of_server())
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        port = 0
        cause = str(error)
    else:
        cause = "the port is taken or not allowed"
    if port == 0:
        raise SeedbedError(ExitCode.BIND, f"cannot listen on {address}: {cause}")
    if address.startswith("unix:"):
        return address
    return f"{address.rsplit(':', 1)[0]}:{port}"
