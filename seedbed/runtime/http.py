"""The small HTTP server of a service: /metrics, /healthz, /status and POST /profile."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

MAX_PROFILE_S = 300.0
_CLIENT_TIMEOUT_S = 10.0  # a client that says nothing for so long loses its connection

log = logging.getLogger(__name__)


class Refused(RuntimeError):
    """Raised by `profile`: not now. The client gets 409 with the words."""


class MetricsServer:
    """Serves in threads of its own until `close`.

    GET /metrics: Prometheus text. GET /healthz and /readyz: 200 `ok`, or 503 with the reason.
    GET /status: JSON, 404 without `status`. POST /profile?seconds=N: runs `profile(N)`, answers
    with the directory it returns; 409 while one runs, 404 without `profile`.
    """

    def __init__(
        self,
        port: int,
        registry: CollectorRegistry,
        *,
        unhealthy: Callable[[], str | None] = lambda: None,
        unready: Callable[[], str | None] = lambda: None,
        status: Callable[[], Mapping[str, Any]] | None = None,
        profile: Callable[[float], str] | None = None,
        host: str = "0.0.0.0",
    ) -> None:
        """Listen on `port` (0 draws a free one, see `self.port`).

        Args:
            unhealthy: the reason why this process should be restarted, or None. It must answer
                at once.
            unready: likewise, the reason why nobody should be sent here yet.
            profile: called with seconds; blocks so long and returns where the profile lies.

        Raises:
            SeedbedError: BIND, when the port is taken or not allowed.
        """
        self.registry = registry
        self.unhealthy = unhealthy
        self.unready = unready
        self.status = status
        self.profile = profile
        self.profiling = threading.Lock()
        handler = type("Handler", (_Handler,), {"owner": self})
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            raise SeedbedError(
                ExitCode.BIND,
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}; choose another "
                "metrics_port, or 0 for none",
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="metrics-http",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Requests under way are left to their threads."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)


def start_metrics_server(
    port: int, registry: CollectorRegistry, **parts: Any
) -> MetricsServer | None:
    """A `MetricsServer` with these parts, or None when `port` is 0 (as in the experiment)."""
    return MetricsServer(port, registry, **parts) if port else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a running profile must not hold up the end of the process

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up early is its own affair; anything else is a defect of ours.
        log.debug("request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    owner: MetricsServer
    timeout = _CLIENT_TIMEOUT_S
    protocol_version = "HTTP/1.1"
    server_version = "seedbed"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        try:
            if path == "/metrics":
                # Always the classic text: OpenMetrics forbids the sum of negative returns.
                text = generate_latest(self.owner.registry)
                self._answer(HTTPStatus.OK, text, CONTENT_TYPE_PLAIN_0_0_4)
            elif path == "/healthz":
                self._state(self.owner.unhealthy())
            elif path == "/readyz":
                self._state(self.owner.unready())
            elif path == "/status" and self.owner.status is not None:
                self._json(HTTPStatus.OK, dict(self.owner.status()))
            else:
                self._text(HTTPStatus.NOT_FOUND, f"no {path} here: {', '.join(self._paths())}")
        except Exception as error:
            self._failed(error)

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        self.close_connection = True  # a body, if there is one, is not read
        if parts.path != "/profile" or self.owner.profile is None:
            self._text(
                HTTPStatus.NOT_FOUND, f"no POST {parts.path} here: {', '.join(self._paths())}"
            )
            return
        given = parse_qs(parts.query).get("seconds", ["5"])[-1]
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= MAX_PROFILE_S:
            self._text(
                HTTPStatus.BAD_REQUEST,
                f"seconds={given!r} must be a number above 0 and at most {MAX_PROFILE_S:g}",
            )
            return
        if not self.owner.profiling.acquire(blocking=False):
            self._text(HTTPStatus.CONFLICT, "a profile is running: try again when it is done")
            return
        try:
            directory = self.owner.profile(seconds)
        except Refused as refusal:
            self._text(HTTPStatus.CONFLICT, str(refusal))
        except Exception as error:
            self._failed(error)
        else:
            self._json(HTTPStatus.OK, {"seconds": seconds, "directory": directory})
        finally:
            self.owner.profiling.release()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)

    def _state(self, reason: str | None) -> None:
        if reason is None:
            self._text(HTTPStatus.OK, "ok")
        else:
            self._text(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def _paths(self) -> list[str]:
        paths = ["GET /metrics", "GET /healthz", "GET /readyz"]
        if self.owner.status is not None:
            paths.append("GET /status")
        if self.owner.profile is not None:
            paths.append("POST /profile?seconds=N")
        return paths

    def _failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionError | TimeoutError):
            raise error  # the client's connection: nobody is left to answer
        log.exception("%s %s failed", self.command, self.path)
        self._text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _json(self, code: HTTPStatus, value: dict[str, Any]) -> None:
        self._answer(code, json.dumps(value, allow_nan=False).encode() + b"\n", "application/json")

    def _text(self, code: HTTPStatus, text: str) -> None:
        self._answer(code, text.encode() + b"\n", "text/plain; charset=utf-8")

    def _answer(self, code: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
