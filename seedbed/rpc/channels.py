"""Factories of gRPC channels and servers, each option with its reason."""

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
import uvloop

from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

# Observations of a group: E * 72 * 96 * 3 bytes at E = 1,024 are 21 MB. 64 MB leaves room, and
# still bounds what a broken peer can make the other side allocate.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Largest metadata of a call.
METADATA_BYTES = 8 * 1024

_Result = TypeVar("_Result")

_LOOKAHEAD = "grpc.http2.lookahead_bytes"

_COMMON: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Images do not compress in the time of a step.
    ("grpc.default_compression_algorithm", 0),
    # HTTP/2 flow control would probe the bandwidth-delay product. Without probes, a window of one
    # large message is enough for lock-step traffic, and small messages save a round of pings.
    ("grpc.http2.bdp_probe", 0),
    (_LOOKAHEAD, 4 * 1024 * 1024),
    ("grpc.http2.max_frame_size", 4 * 1024 * 1024),
    # A peer that vanished without a FIN (node gone, cable cut) is noticed within 30 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]

_CLIENT: list[tuple[str, Any]] = [
    *_COMMON,
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Each group has a connection of its own. The flow control and the writer of a shared one would
    # make the groups of an actor wait for each other.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # An environment's http_proxy must not catch traffic inside a cluster.
    ("grpc.enable_http_proxy", 0),
]

_SERVER: list[tuple[str, Any]] = [
    *_COMMON,
    # Accept the clients' 20 s pings; the default of five minutes answers with GOAWAY.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Two learners on one port would each get half of the actors.
    ("grpc.so_reuseport", 0),
    # A learner has five calls on its connection to a shard, an actor's group one.
    ("grpc.max_concurrent_streams", 8),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", 2 * METADATA_BYTES),
    # Connections on which nothing is said are given to others.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 30_000),
]
_LOOKAHEAD_BYTES = 64 * 1024


def run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine with uvloop, which takes a quarter off a message's CPU time."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _tls(address: str, credentials: Credentials) -> Tls | None:
    """Return the certificates for an address; None where it is not encrypted."""
    return None if address.startswith("unix:") else credentials.tls


def channel(address: str, credentials: Credentials = PLAIN) -> grpc.Channel:
    """Return a channel to `host:port` or `unix:PATH`, with a connection of its own."""
    if (tls := _tls(address, credentials)) is not None:
        return grpc.secure_channel(address, tls.of_client(), options=_CLIENT)
    return grpc.insecure_channel(address, options=_CLIENT)


def aio_channel(address: str, credentials: Credentials = PLAIN) -> grpc.aio.Channel:
    """Return a channel as `channel` does, for the event loop."""
    if (tls := _tls(address, credentials)) is not None:
        return grpc.aio.secure_channel(address, tls.of_client(), options=_CLIENT)
    return grpc.aio.insecure_channel(address, options=_CLIENT)


def aio_server(
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    max_message_bytes: int = MAX_MESSAGE_BYTES,
    connections: int = 64,
) -> grpc.aio.Server:
    """Return an asyncio server. No thread pool bounds its concurrency.

    Args:
        interceptors: Guards of its methods.
        max_message_bytes: Largest message that it receives.
        connections: Connections that each of its sockets takes.
    """
    # What streams may hold that are not read.
    lookahead = max(_LOOKAHEAD_BYTES, min(max_message_bytes, dict(_COMMON)[_LOOKAHEAD]))
    options = [
        *_SERVER,
        ("grpc.max_receive_message_length", max_message_bytes),
        (_LOOKAHEAD, lookahead),
        ("grpc.max_allowed_incoming_connections", connections),
    ]
    return grpc.aio.server(options=list(dict(options).items()), interceptors=list(interceptors))


def _answers(path: str) -> bool:
    """Return whether a process listens on a unix socket. A killed process leaves the path."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path.removeprefix("//"))
        except OSError:
            return False
        return True


def bind(server: grpc.aio.Server, address: str, credentials: Credentials = PLAIN) -> str:
    """Listen on `host:port` or `unix:PATH`, and return the address to connect to.

    Args:
        server: not started yet.
        address: port 0 means any free port.
        credentials: with certificates, clients of a port need one of the same authority; a unix
            socket is never encrypted, because no network is between.

    Raises:
        SeedbedError: BIND, with the address.
    """
    if address.startswith("unix:") and _answers(address.removeprefix("unix:")):
        # gRPC would silently take the path away from the process that listens there.
        raise SeedbedError(ExitCode.BIND, f"cannot listen on {address}: another process does")
    tls = _tls(address, credentials)
    try:
        if tls is not None:
            port = server.add_secure_port(address, tls.of_server())
        else:
            port = server.add_insecure_port(address)
    except RuntimeError as error:
        cause = f"the port is taken, or the address is not of this machine ({error})"
        raise SeedbedError(ExitCode.BIND, f"cannot listen on {address}: {cause}") from error
    if address.startswith("unix:"):
        return address
    return f"{address.rsplit(':', 1)[0]}:{port}"
