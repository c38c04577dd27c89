"""Counts of the bytes that compiled functions on tables are given on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from seedbed.backends.protocol import Backend


def host_bytes(given: Any) -> int:
    """Return the bytes of all NumPy arrays in arguments."""
    if isinstance(given, np.ndarray):
        return given.nbytes
    if isinstance(given, dict):
        return sum(map(host_bytes, given.values()))
    return sum(map(host_bytes, given)) if isinstance(given, list | tuple) else 0


def count_bytes(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> list[int]:
    """Return a list that gets the bytes of each call of a function compiled from now on.

    A call sends its arrays on the host to the device, and nothing else does.
    """
    sent: list[int] = []
    running: list[bool] = []

    def counting(compile_one: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tables: Any, *arguments: Any, **options: Any) -> Callable[..., Any]:
            call = compile_one(tables, *arguments, **options)

            def run(*given: Any) -> Any:
                if running:  # `compile_inference` calls what `compile` returned
                    return call(*given)
                sent.append(host_bytes(given))
                running.append(True)
                try:
                    return call(*given)
                finally:
                    running.pop()

            if hasattr(call, "get_concrete_function"):  # TensorFlow's, for `compile_inference`
                run.get_concrete_function = call.get_concrete_function  # type: ignore[attr-defined]
            return run

        return counted

    for name in ("compile", "compile_inference"):
        monkeypatch.setattr(backend.tables, name, counting(getattr(backend.tables, name)))
    to_device = type(backend).to_device

    def counted_batch(self: Any, batch: Any) -> Any:
        sent.append(host_bytes(batch))
        return to_device(self, batch)

    monkeypatch.setattr(type(backend), "to_device", counted_batch)
    return sent
