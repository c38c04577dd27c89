"""The HTTP port: what a client beyond loopback reads, and what it makes the process do."""

from __future__ import annotations

import random
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from seedbed import backends
from seedbed.config import parse_experiment
from seedbed.runtime.http import (
    HTTP_CONNECTIONS,
    MAX_HEAD_BYTES,
    METRICS_HOST_VARIABLE,
    MetricsServer,
    _Handler,
    get_json,
)
from seedbed.runtime.tokens import Role, Tokens
from seedbed.services.cost.learners import read_learner
from seedbed.services.learner.profiling import KEPT, Profiler
from seedbed.telemetry import Counters, Telemetry
from seedbed.telemetry.cost_meter import CostMeterClient, Reading
from tests.support.private_files import write_private
from tests.support.waiting import wait_for

SECRETS = {role: f"{role}-0123456789abcdef" for role in Role}
PROTECTED = (
    ("GET", "/status"),
    ("GET", "/rows?file=progress.csv"),
    ("POST", "/profile?seconds=1"),
)
OPEN = (("GET", "/metrics"), ("GET", "/healthz"), ("GET", "/readyz"))


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    write_private(path, "".join(f"{role} {secret}\n" for role, secret in SECRETS.items()))
    return Tokens(path)


class Served:
    """A server with all routes, and how often it has profiled."""

    def __init__(self, **options: Any) -> None:
        self.profiles: list[float] = []
        parts = {
            "status": lambda: {"secret": "plans"},
            "rows": str.encode,
            "profile": self._profile,
            **options,
        }
        self.server = MetricsServer(0, CollectorRegistry(), **parts)

    def _profile(self, seconds: float) -> str:
        self.profiles.append(seconds)
        return "profile"

    def request(
        self,
        method: str,
        path: str,
        secret: str = "",
        host: str = "127.0.0.1",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Status and text; `host` is an address of this machine."""
        url = f"http://{host}:{self.server.port}{path}"
        request = urllib.request.Request(url, method=method, headers=dict(headers))
        if secret:
            request.add_header("Authorization", f"Bearer {secret}")
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@contextmanager
def served(**options: Any) -> Iterator[Served]:
    made = Served(**options)
    try:
        yield made
    finally:
        made.server.close()


@pytest.fixture
def beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of this machine's servers comes from elsewhere."""
    environ = _Handler.get_environ

    def get_environ(self: _Handler) -> dict[str, str]:
        return {**environ(self), "REMOTE_ADDR": "203.0.113.7"}

    monkeypatch.setattr(_Handler, "get_environ", get_environ)


def test_a_strangers_requests_start_no_profile(tokens: Tokens, beyond: None) -> None:
    """D13: mutated requests started 51 profiles of 5,894."""
    draw = random.Random(13)
    headers = ["", "X-Forwarded-For: 127.0.0.1", "Remote-Addr: 127.0.0.1"]
    headers += [
        f"Authorization: {words}"
        for words in (
            "",
            "Bearer ",
            "Bearer x",
            f"bearer {SECRETS[Role.OBSERVER]}",
            f"Basic {SECRETS[Role.OBSERVER]}",
            f"Bearer {SECRETS[Role.LEARNER]}",
        )
    ]
    for options in ({}, {"tokens": tokens}):
        with served(**options) as victim:
            for _ in range(100):
                query = draw.choice(["", "?", "?seconds=1", "?seconds=0.1&seconds=2", "?x=%00"])
                header = draw.choice(headers)
                body = "x" * draw.randrange(50)
                request = f"POST /profile{query} HTTP/1.{draw.randrange(2)}\r\n{header}\r\n"
                length = draw.choice([len(body), 10**9, -1])
                with socket.create_connection(("127.0.0.1", victim.server.port), 10) as raw:
                    raw.sendall(f"{request}Content-Length: {length}\r\n\r\n{body}".encode())
                    answer = raw.recv(100).decode()
                assert answer.split()[1] in ("401", "403", "400"), (request, answer)
            assert victim.profiles == []
            assert victim.request("GET", "/metrics")[0] == 200


def test_status_and_profile_are_for_their_roles(tokens: Tokens, beyond: None) -> None:
    with served(tokens=tokens) as learner:
        for method, path in PROTECTED:
            for secret in ("", "observer-0123456789abcdeF", "é"):
                code, text = learner.request(method, path, secret)
                assert code == 401, (path, secret)
                assert "token of the role observer" in text
            for role in (Role.ACTOR, Role.SHARD):
                code, text = learner.request(method, path, SECRETS[role])
                assert code == 403
                assert f"the token of {role}" in text
            assert learner.request(method, path, SECRETS[Role.OBSERVER])[0] == 200
        assert learner.request("GET", "/status", SECRETS[Role.LEARNER])[0] == 200
        assert learner.request("POST", "/profile", SECRETS[Role.LEARNER])[0] == 403
        assert learner.request("GET", "/rows", SECRETS[Role.LEARNER])[0] == 403
        for method, path in OPEN:
            assert learner.request(method, path)[0] == 200
        assert learner.request("GET", "/nothing")[0] == 404
        assert learner.profiles == [1.0]


def test_without_tokens_only_this_machine_is_served(beyond: None) -> None:
    with served() as learner, served(insecure=True) as insecure:
        for method, path in PROTECTED:
            code, text = learner.request(method, path, SECRETS[Role.OBSERVER])
            assert code == 403
            assert "start this process with --token-file" in text
            assert insecure.request(method, path)[0] == 200
        for method, path in OPEN:
            assert learner.request(method, path)[0] == 200


def test_on_loopback_everything_is_open(tokens: Tokens) -> None:
    with served(tokens=tokens) as learner:
        for method, path in (*PROTECTED, *OPEN):
            assert learner.request(method, path)[0] == 200


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Host", "evil.example"),
        ("Host", "127.0.0.1.evil.example:9090"),
        ("Host", "localhost.evil.example"),
        ("Host", ""),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-origin"),
    ],
)
def test_a_web_page_on_this_machine_is_a_stranger(
    header: str, value: str, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tokens=tokens) as learner, served(insecure=True) as insecure:
        monkeypatch.setenv(METRICS_HOST_VARIABLE, "0.0.0.0")
        with served(tokens=tokens) as asked:
            for method, path in PROTECTED:
                for victim in (learner, insecure, asked):
                    code, text = victim.request(method, path, headers={header: value})
                    assert code == 403
                    assert "not for web pages" in text
                secret = SECRETS[Role.OBSERVER]
                assert learner.request(method, path, secret, headers={header: value})[0] == 200
            for method, path in OPEN:
                assert learner.request(method, path, headers={header: value})[0] == 403
                assert asked.request(method, path, headers={header: value})[0] == 200
        assert learner.profiles == [1.0]
        assert insecure.profiles == []


def test_a_person_with_a_browser_is_served() -> None:
    with served() as learner:
        for host in ("localhost", "127.0.0.1"):
            typed = {"Sec-Fetch-Site": "none", "Host": f"{host}:{learner.server.port}"}
            for method, path in (*PROTECTED, *OPEN):
                assert learner.request(method, path, headers=typed)[0] == 200


def own_address() -> str | None:
    """An address of this machine beyond loopback; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.7", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


def test_an_address_of_this_machine_is_beyond_loopback(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(METRICS_HOST_VARIABLE, "::")
    host = own_address()
    if host is None:
        pytest.skip("this machine has no address beyond loopback")
    with served(tokens=tokens) as learner:
        for method, path in PROTECTED:
            assert learner.request(method, path, host=host)[0] == 401
            assert learner.request(method, path, SECRETS[Role.OBSERVER], host)[0] == 200


def test_meter_and_learner_read_each_other(
    tokens: Tokens,
    beyond: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which would read the tokens
    bill = {"dollars": 2.0, "dollars_per_hour": 3.0}
    meter = MetricsServer(0, CollectorRegistry(), status=lambda: bill, tokens=tokens)
    url = f"http://127.0.0.1:{meter.port}/status"
    try:
        assert read_learner(url, tokens) == bill
        assert read_learner(url) is None
        assert "Unauthorized" in caplog.text, "which ends no run, and must be seen"
        assert CostMeterClient(url, tokens).reading == Reading(2.0, 3.0)
        assert CostMeterClient(url).reading is None
        priced = parse_experiment(f"name: a\nenvironment: {{id: x}}\ncost: {{meter: '{url}'}}")
        counters = Counters()
        Telemetry(priced, None, counters, tokens=tokens).cost.account()
        assert counters.dollars == 2.0, "as a learner counts"
        bill["dollars"] = -1.0
        assert CostMeterClient(url, tokens).reading is None, "a bill is not negative"
    finally:
        meter.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",  # IncompleteRead
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
        b"nonsense\r\n\r\n",
        b"",
    ],
)
def test_a_broken_answer_is_none(answer: bytes, tokens: Tokens) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                client, _ = server.accept()
                with client:
                    client.recv(10_000)
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/status"
        assert read_learner(url, tokens) in (None, {})
        assert CostMeterClient(url).reading is None
        thread.join(10)


def test_silent_connections_are_bounded_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Handler, "timeout", 300.0)
    with served() as victim, ExitStack() as stack:
        before = threading.active_count()
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", victim.server.port), 30))
            for _ in range(HTTP_CONNECTIONS + 50)
        ]
        assert silent[0].recv(1) == b"", "the oldest is closed"
        assert victim.request("GET", "/healthz") == (200, "ok\n")
        wait_for(lambda: threading.active_count() <= before + HTTP_CONNECTIONS, "threads end")


def test_the_head_of_a_request_is_bounded() -> None:
    with (
        served() as victim,
        socket.create_connection(("127.0.0.1", victim.server.port), 30) as raw,
    ):
        raw.sendall(b"GET /status HTTP/1.1\r\n" + b"a: " + b"x" * MAX_HEAD_BYTES)
        # Without an end of the header, the answer shows that no more is read.
        assert raw.recv(100).startswith(b"HTTP/1.0 200 OK")


def test_a_token_is_not_sent_to_where_a_redirection_points(tokens: Tokens) -> None:
    seen: list[bytes] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as thief,
        socket.create_server(("127.0.0.1", 0)) as first,
    ):
        target = f"http://127.0.0.1:{thief.getsockname()[1]}/"
        answers = [
            f"HTTP/1.0 302 Found\r\nLocation: {target}\r\n\r\n".encode(),
            b"HTTP/1.0 200 OK\r\n\r\n{}",
        ]

        def serve() -> None:
            for server, answer in zip((first, thief), answers, strict=True):
                client, _ = server.accept()
                with client:
                    seen.append(client.recv(10_000))
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{first.getsockname()[1]}/status"
        assert get_json(url, 10, tokens, Role.OBSERVER) == {}
        thread.join(10)
    secret = SECRETS[Role.OBSERVER].encode()
    assert [secret in request for request in seen] == [True, False]


class _Backend:
    """Writes a profile as the backends do."""

    def __init__(self) -> None:
        self.written = 0

    @contextmanager
    def profile(self, directory: str) -> Iterator[None]:
        self.written += 1
        folder = Path(directory) / "plugins" / "profile" / f"{self.written:03}"
        folder.mkdir(parents=True)
        (folder / "trace").write_bytes(b"x")
        yield


def test_a_profile_under_way_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a request or SIGUSR1 has started it."""
    monkeypatch.setattr(backends, "current", _Backend)
    stopping, entered = threading.Event(), threading.Event()
    profiler = Profiler(tmp_path, stopping)
    wait = stopping.wait
    monkeypatch.setattr(stopping, "wait", lambda s: (entered.set(), wait(s)))
    by_signal = threading.Thread(target=profiler.profile, args=(60.0,))
    by_signal.start()
    assert entered.wait(30)
    with served(profile=profiler.profile) as learner:
        code, text = learner.request("POST", "/profile")
    stopping.set()
    by_signal.join(30)
    assert code == 409
    assert "a profile is running" in text


def test_the_newest_profiles_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _Backend()
    monkeypatch.setattr(backends, "current", lambda: backend)
    stopping = threading.Event()
    stopping.set()
    profiler = Profiler(tmp_path, stopping)
    for _ in range(KEPT + 3):
        profiler.profile(1.0)
    left = sorted(path.name for path in (tmp_path / "plugins" / "profile").iterdir())
    assert left == [f"{number:03}" for number in range(4, KEPT + 4)]
