"""mTLS over a real gRPC connection: strangers get nothing, renewed certificates are taken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.server import ServerThread
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.runtime.tokens import Role
from tests.support.private_files import write_private


def write(folder: Path, authority: trustme.CA, *names: str) -> Path:
    """A folder as a Kubernetes secret is mounted."""
    folder.mkdir(exist_ok=True)
    certificate = authority.issue_cert(*names)
    write_private(folder / "tls.key", certificate.private_key_pem.bytes())
    (folder / "tls.crt").write_bytes(b"".join(p.bytes() for p in certificate.cert_chain_pems))
    (folder / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return folder


def certified(folder: Path) -> Credentials:
    return Credentials(Role.LEARNER, tls=Tls(folder))


@contextmanager
def serving(credentials: Credentials) -> Iterator[str]:
    """Yield the address of a server that reports SERVING."""
    ready, stop = threading.Event(), threading.Event()
    addresses: list[str] = []

    async def serve() -> None:
        server = channels.aio_server()
        servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        addresses.append(channels.bind(server, "localhost:0", credentials))
        await server.start()
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.stop(0)

    thread = threading.Thread(target=lambda: channels.run(serve()))
    thread.start()
    assert ready.wait(30)
    try:
        yield addresses[0]
    finally:
        stop.set()
        thread.join()


def asks(address: str, credentials: Credentials) -> grpc.StatusCode:
    """What a client gets."""
    with channels.channel(address, credentials) as channel:
        try:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_only_who_has_a_certificate_of_the_authority_is_answered(tmp_path: Path) -> None:
    ours, other = trustme.CA(), trustme.CA()
    server = certified(write(tmp_path / "server", ours, "localhost"))
    with serving(server) as address:
        assert (
            asks(address, certified(write(tmp_path / "actor", ours, "actor"))) is grpc.StatusCode.OK
        )
        stranger = certified(write(tmp_path / "stranger", other, "actor"))
        assert asks(address, stranger) is grpc.StatusCode.UNAVAILABLE
        # The authority is right, the certificate is another one's.
        half = write(tmp_path / "half", other, "actor")
        (half / "ca.crt").write_bytes(ours.cert_pem.bytes())
        assert asks(address, certified(half)) is grpc.StatusCode.UNAVAILABLE
        assert asks(address, PLAIN) is grpc.StatusCode.UNAVAILABLE


def test_a_server_of_another_name_is_not_believed(tmp_path: Path) -> None:
    ours = trustme.CA()
    with serving(certified(write(tmp_path / "server", ours, "elsewhere"))) as address:
        assert asks(address, certified(write(tmp_path / "actor", ours, "actor"))) is (
            grpc.StatusCode.UNAVAILABLE
        )


def test_renewed_files_are_taken_without_a_restart(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    folder = write(tmp_path / "server", old, "localhost")
    actor = write(tmp_path / "actor", old, "actor")
    client = certified(actor)
    with serving(certified(folder)) as address:
        assert asks(address, client) is grpc.StatusCode.OK
        write(folder, new, "localhost")
        assert asks(address, client) is grpc.StatusCode.UNAVAILABLE, "signed by the old one"
        write(actor, new, "actor")
        assert asks(address, client) is grpc.StatusCode.OK


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "tls", trustme.CA(), "x")
    (folder / "ca.crt").write_text("nothing")
    with pytest.raises(SeedbedError, match=r"ca\.crt is no PEM") as error:
        Tls(folder)
    assert error.value.code is ExitCode.CONFIG
    (folder / "tls.key").unlink()
    with pytest.raises(SeedbedError, match=r"cannot read .*tls\.key"):
        Tls(folder)


class _Health(ServerThread):
    """Serves only the health service."""

    def _add(self, server: grpc.aio.Server) -> None:
        pass


def test_a_socket_beside_the_port_is_not_encrypted(tmp_path: Path) -> None:
    """Processes of one machine need no certificate for a socket; the port demands one."""
    authority, threads = trustme.CA(), Threads()
    server = _Health("localhost:0", threads, certified(write(tmp_path, authority, "localhost")))
    server.also_listen = [f"unix:{tmp_path}/socket"]
    port = server.start()
    try:
        assert asks(server.also_listen[0], PLAIN) == grpc.StatusCode.OK
        assert asks(port, PLAIN) != grpc.StatusCode.OK
    finally:
        server.close()
        assert threads.join(20) == []
