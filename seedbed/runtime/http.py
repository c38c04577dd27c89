"""The small HTTP server of a service: metrics, health, status, rows and profiles."""

import errno
import json
import logging
import math
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from typing_extensions import override

from seedbed.runtime.budget import HTTP_CONNECTIONS
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.runtime.tokens import (
    AUTHORIZATION,
    BEARER,
    Role,
    Tokens,
    authorization_of,
)

# Name of the environment variable with the address that the HTTP port listens on; without it,
# loopback. `::` is every address.
METRICS_HOST_VARIABLE = "SEEDBED_METRICS_HOST"
MAX_PROFILE_S = 300.0
MAX_HEAD_BYTES = 16 << 10
# Longest answer that `get_json` reads, in bytes.
MAX_JSON_BYTES = 16 << 20

# Routes that need a token beyond loopback, and the roles that they are for.
_ALLOWED: Mapping[str, tuple[Role, ...]] = {
    "GET /status": (Role.OBSERVER, Role.LEARNER),
    "GET /rows": (Role.OBSERVER,),
    "POST /profile": (Role.OBSERVER,),
}

_BYTES = "application/octet-stream"

# An environment's http_proxy must not read tokens.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

log = logging.getLogger(__name__)


class Conflict(RuntimeError):
    """Raised by `profile` when none can be made now. The client gets 409 with the message."""


class BadRequest(ValueError):
    """Raised for a query that cannot be answered. The client gets 400 with the message."""


class Answer(NamedTuple):
    """The status line, body and type of a response."""

    status: str
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def _text(status: str, text: str) -> Answer:
    return Answer(status, text.encode() + b"\n")


def _json(value: Mapping[str, Any]) -> Answer:
    body = json.dumps(value, allow_nan=False).encode() + b"\n"
    return Answer("200 OK", body, "application/json")


def _state(reason: str | None) -> Answer:
    return _text("200 OK", "ok") if reason is None else _text("503 Service Unavailable", reason)


class MetricsServer:
    """Serves in threads of its own until `close`.

    GET /metrics: Prometheus text. GET /healthz and /readyz: 200 `ok`, or 503 with the reason.
    GET /status: JSON, 404 without `status`. GET /rows?QUERY: the bytes of `rows(QUERY)`, 404
    without `rows`. POST /profile?seconds=N: runs `profile(N)`, answers with the directory that
    `profile` returns; 409 while one runs, 404 without `profile`.

    Beyond loopback, /status, /rows and /profile need a token of a role that they are for: 401
    without one, 403 with another role's or where this process has no token file. A web page gets
    403: for these routes unless it has such a token, and for the others where the server listens on
    loopback alone.

    Attributes:
        host: The address in use.
        port: The port in use.
    """

    def __init__(
        self,
        port: int,
        registry: CollectorRegistry,
        *,
        unhealthy: Callable[[], str | None] = lambda: None,
        unready: Callable[[], str | None] = lambda: None,
        status: Callable[[], Mapping[str, Any]] | None = None,
        rows: Callable[[str], bytes] | None = None,
        profile: Callable[[float], str] | None = None,
        tokens: Tokens | None = None,
        insecure: bool = False,
    ) -> None:
        """Listen.

        Args:
            port: 0 draws a free one.
            registry: The metrics to serve.
            unhealthy: Returns at once the reason to restart this process, or None.
            unready: Returns at once the reason to send no client here yet, or None.
            status: Returns the object of /status.
            rows: Returns the body of /rows for a query; raises `BadRequest` for a wrong one.
            profile: Called with seconds; blocks so long and returns the directory of the profile.
            tokens: Tokens that clients beyond loopback need; None: those clients are refused.
            insecure: Serve every client.

        Raises:
            SeedbedError: BIND, when the port is taken or not allowed; CONFIG, when
                SEEDBED_METRICS_HOST is no address.
        """
        self._profiling = threading.Lock()
        self._tokens, self._insecure = tokens, insecure
        # The classic text, because OpenMetrics forbids the sum of negative returns.
        self._routes: dict[str, Callable[[str], Answer]] = {
            "GET /metrics": lambda _: Answer(
                "200 OK", generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4
            ),
            "GET /healthz": lambda _: _state(unhealthy()),
            "GET /readyz": lambda _: _state(unready()),
        }
        if status is not None:
            self._routes["GET /status"] = lambda _: _json(status())
        if rows is not None:
            self._routes["GET /rows"] = lambda query: Answer("200 OK", rows(query), _BYTES)
        if profile is not None:
            self._routes["POST /profile"] = partial(self._run_profile, profile)
        host = _host()
        try:
            self._server = _listen(host, port)
        except OSError as error:
            raise SeedbedError(
                ExitCode.BIND,
                f"cannot serve metrics on {host} port {port}: {error.strerror or error}; choose "
                "another metrics_port, or 0 for none",
            ) from error
        self._server.set_app(self._answer)
        self.host = str(self._server.server_address[0])
        self.port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Requests under way are left to their threads."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        name = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        route = self._routes.get(name)
        try:
            if route is None:
                answer = _text("404 Not Found", f"no {name} here: {', '.join(self._routes)}")
            else:
                answer = self._denial(name, environ) or route(environ["QUERY_STRING"])
        except BadRequest as error:
            answer = _text("400 Bad Request", str(error))
        except Exception as error:
            log.exception("%s failed", name)
            answer = _text("500 Internal Server Error", f"{type(error).__name__}: {error}")
        size = str(len(answer.body))
        headers = [("Content-Type", answer.content_type), ("Content-Length", size)]
        if answer.status.startswith("401"):
            headers.append(("WWW-Authenticate", BEARER.strip()))
        start(answer.status, headers)
        return [answer.body]

    def _denial(self, name: str, environ: WSGIEnvironment) -> Answer | None:
        """Return why a route is refused to a client, or None if the client may have it."""
        allowed = _ALLOWED.get(name, ())
        role = None
        if allowed and self._tokens is not None:
            secret = authorization_of(environ.get("HTTP_AUTHORIZATION", ""))
            caller = self._tokens.caller_of(secret)
            role = caller and caller.role
        if role in allowed:
            return None
        is_here = _is_loopback(environ["REMOTE_ADDR"])
        if (allowed or _is_loopback(self.host)) and _is_page(environ, is_here):
            return _text(
                "403 Forbidden",
                f"{name} is not for web pages: type http://127.0.0.1:{self.port} or http://localhost:"
                f"{self.port} yourself, or send a token (docs/security.md)",
            )
        if not allowed or self._insecure or is_here:
            return None
        if self._tokens is None:
            return _text(
                "403 Forbidden",
                f"{name} is for clients on this machine only, because there is no token file: ask "
                "from 127.0.0.1, or start this process with --token-file (docs/security.md)",
            )
        wanted = " or ".join(allowed)
        if role is None:
            return _text(
                "401 Unauthorized",
                f"{name} needs a token of the role {wanted}: send `Authorization: Bearer SECRET` "
                "with a secret of this release's token files (docs/security.md)",
            )
        return _text("403 Forbidden", f"{name} is for the role {wanted}, and the token of {role}")

    def _run_profile(self, profile: Callable[[float], str], query: str) -> Answer:
        given = parse_qs(query).get("seconds", ["5"])[-1]
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= MAX_PROFILE_S:
            return _text(
                "400 Bad Request",
                f"seconds={given!r} must be a number above 0 and at most {MAX_PROFILE_S:g}",
            )
        if not self._profiling.acquire(blocking=False):
            return _text("409 Conflict", "a profile is running: try again when it is done")
        try:
            return _json({"seconds": seconds, "directory": profile(seconds)})
        except Conflict as conflict:
            return _text("409 Conflict", str(conflict))
        finally:
            self._profiling.release()


def start_metrics_server(
    port: int, registry: CollectorRegistry, **parts: Any
) -> MetricsServer | None:
    """Return a `MetricsServer`, or None when `port` is 0.

    Args:
        port: TCP port to listen on.
        registry: The metrics to serve.
        parts: More arguments of `MetricsServer`.
    """
    return MetricsServer(port, registry, **parts) if port else None


def get_json(url: str, timeout_s: float, tokens: Tokens | None, role: Role) -> Any:
    """Return the JSON at a URL.

    Args:
        url: As of `get_bytes`, like the others.
        timeout_s: Longest wait.
        tokens: With the secret that is sent.
        role: Role of this process.

    Raises:
        OSError: There is no answer, or none with status 200.
        ValueError: The answer is not JSON, or is cut off.
        SeedbedError: CONFIG, the token file has no secret of the role.
    """
    try:
        return json.loads(get_bytes(url, timeout_s, tokens, role, MAX_JSON_BYTES))
    except RecursionError as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def get_bytes(
    url: str, timeout_s: float, tokens: Tokens | None, role: Role, most_bytes: int
) -> bytes:
    """Return the beginning of what is at a URL.

    Args:
        url: `http:` or `https:`.
        timeout_s: Longest wait for each part of the answer, in seconds; for all of it, ten times
            as long.
        tokens: Their first secret of `role` is sent; None: no token is.
        role: Role of this process.
        most_bytes: The most that is read.

    Raises:
        OSError: There is no answer, or none with status 200.
        ValueError: The answer is no HTTP, or is cut off.
        SeedbedError: CONFIG, the token file has no secret of the role.
    """
    request = urllib.request.Request(url)
    if tokens is not None:
        # Not sent on to where a redirection points.
        request.add_unredirected_header(AUTHORIZATION, BEARER + tokens.secret(role))
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            body, end = b"", time.monotonic() + 10 * timeout_s
            while part := answer.read1(most_bytes - len(body)):
                body += part
                if time.monotonic() > end:
                    raise TimeoutError(f"{url}: {len(body)} bytes in {10 * timeout_s:g} s")
            return body
    except HTTPException as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _is_loopback(address: str) -> bool:
    """Return whether a client is on this machine. IPv4 arrives as `::ffff:127.0.0.1`."""
    given = ip_address(address)
    return (getattr(given, "ipv4_mapped", None) or given).is_loopback


def _is_page(environ: WSGIEnvironment, is_here: bool) -> bool:
    """Return whether a web page may have made a request.

    A browser names a page's origin in each request that changes something, and in each to another
    origin; where a page's own name was made to point here, the request has that name as its host.
    An address that a person has typed has neither. Beyond this machine a name is usual.
    """
    if "HTTP_ORIGIN" in environ or environ.get("HTTP_SEC_FETCH_SITE", "none") != "none":
        return True
    if not is_here or "HTTP_HOST" not in environ:
        return False
    try:
        host = urlsplit("//" + environ["HTTP_HOST"]).hostname or ""
        return host != "localhost" and not ip_address(host)
    except ValueError:
        return True


def _host() -> str:
    host = os.environ.get(METRICS_HOST_VARIABLE) or "127.0.0.1"
    try:
        ip_address(host)
    except ValueError as error:
        raise ConfigError(
            f"{METRICS_HOST_VARIABLE}: {host!r} is no address; `::` is every one, 127.0.0.1 this "
            "machine alone"
        ) from error
    return host


# What stands in for an address whose family this machine lacks.
_OTHER_FAMILY = {"::": "0.0.0.0", "127.0.0.1": "::1"}


def _listen(host: str, port: int) -> "_Server":
    """Listen on an address; on `::` for IPv4, too."""
    kind = _Server if ip_address(host).version == 6 else _IPv4Server
    try:
        return kind((host, port), _Handler)
    except OSError as error:
        lacks_family = error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
        if not lacks_family or host not in _OTHER_FAMILY:
            raise
        return _listen(_OTHER_FAMILY[host], port)


class _Server(ThreadingMixIn, WSGIServer):
    address_family = socket.AF_INET6
    daemon_threads = True
    # A running profile must not hold up the end of the process.
    block_on_close = False
    request_queue_size = HTTP_CONNECTIONS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._connections: dict[Any, None] = {}  # oldest first
        self._lock = threading.Lock()

    @override
    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        oldest = None
        with self._lock:
            self._connections[request] = None
            if len(self._connections) > HTTP_CONNECTIONS:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
        if oldest is not None:
            # The new client is served: a probe must pass while others hold connections open.
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("request of %s failed", client_address, exc_info=True)


class _IPv4Server(_Server):
    address_family = socket.AF_INET


class _Handler(WSGIRequestHandler):
    # Seconds after which a silent client loses its connection.
    timeout = 10.0

    @override
    def setup(self) -> None:
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]

    @override
    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class _Head:
    """Head of a request, cut at `MAX_HEAD_BYTES`. No route reads a body."""

    def __init__(self, file: Any) -> None:
        self._file, self._left = file, MAX_HEAD_BYTES

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(min(size, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._file.close()
