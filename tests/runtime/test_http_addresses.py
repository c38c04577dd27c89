"""The HTTP server: IPv4 and IPv6 at one port, and who is on this machine."""

from __future__ import annotations

import errno
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from seedbed.runtime import http
from seedbed.runtime.exit_codes import ExitCode, SeedbedError


def get(host: str, port: int, path: str = "/status") -> int:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_every_address_is_both_families_at_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(http.METRICS_HOST_VARIABLE, "::")
    server = http.MetricsServer(0, CollectorRegistry(), status=dict)
    try:
        assert get("127.0.0.1", server.port) == 200, "this machine, as ::ffff:127.0.0.1"
        assert get("[::1]", server.port) == 200
    finally:
        server.close()


def test_unless_asked_only_this_machine_reaches_the_port() -> None:
    server = http.MetricsServer(0, CollectorRegistry(), status=dict)
    try:
        assert get("127.0.0.1", server.port) == 200
        for family, elsewhere in ((socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")):
            with socket.socket(family) as other:
                assert other.connect_ex((elsewhere, server.port)) != 0
    finally:
        server.close()


@pytest.mark.parametrize("host", ["localhost", "all", "1.2.3"])
def test_a_host_that_is_no_address_is_named(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(http.METRICS_HOST_VARIABLE, host)
    with pytest.raises(SeedbedError, match=f"SEEDBED_METRICS_HOST: '{host}'") as error:
        http.MetricsServer(0, CollectorRegistry())
    assert error.value.code is ExitCode.CONFIG


@pytest.mark.parametrize("asked", ["::", ""])
def test_without_ipv6(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(http.METRICS_HOST_VARIABLE, asked)
    made = socket.socket

    def no_ipv6(family: int = socket.AF_INET, *arguments: int, **named: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported")
        return made(family, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", no_ipv6)
        server = http.MetricsServer(0, CollectorRegistry(), status=dict)
    try:
        assert get("127.0.0.1", server.port) == 200
    finally:
        server.close()


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.9", True),
        ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("fe80::1%eth0", False),
    ],
)  # fmt: skip
def test_who_is_on_this_machine(address: str, here: bool) -> None:
    assert http._is_loopback(address) is here
