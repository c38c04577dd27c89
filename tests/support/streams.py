"""Servers of one streaming method, and which streams a program has opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from seedbed.rpc import channels


@asynccontextmanager
async def serving(path: str, handle: Callable[[Any], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of a server whose method `path` has streams of bytes, which `handle` serves."""

    async def stream(_: Any, context: Any) -> None:
        await handle(context)

    service, name = path.strip("/").split("/")
    method = grpc.stream_stream_rpc_method_handler(stream)
    server = channels.aio_server()
    handlers = grpc.method_handlers_generic_handler(service, {name: method})
    server.add_generic_rpc_handlers((handlers,))
    address = channels.bind(server, "localhost:0")
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


def note_opened(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> list[str]:
    """The addresses or paths, from now on, to which clients open streams of a kind."""
    opened: list[str] = []
    real = kind.__init__

    def note(self: Any, to: str, *arguments: Any) -> None:
        real(self, to, *arguments)
        opened.append(to)

    monkeypatch.setattr(kind, "__init__", note)
    return opened
