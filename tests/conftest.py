"""What tests of every room share: the backend of this run."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import seedbed.rpc  # noqa: F401  # before gRPC, as in every service
from seedbed import backends
from seedbed.backends.protocol import Backend
from tests.support.parts import left_out

NAME = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
# Helm and kubectl of `make setup`, behind the machine's own.
os.environ["PATH"] += f":{Path(__file__).parents[1] / '.venv' / 'kube'}"
os.environ["IMAGEIO_FFMPEG_NO_PREVENT_SIGINT"] = "1"  # no fork: see evaluation/video.py
pytest.register_assert_rewrite("tests.bench.quick")
LONG_S = 900  # may a test take that is slow or learns
# Test files import Keras at their top, before any fixture runs.
os.environ["KERAS_BACKEND"] = NAME
if NAME == "jax":
    # Most of the time of these tests is XLA's compiler, and what it compiles runs for moments.
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    )


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow, give it its time, and keep one part of it."""
    cases: Counter[str] = Counter()
    for item in items:
        if _is_slow(item, cases):
            item.add_marker(pytest.mark.slow)
    slow = [item for item in items if _has(item, "slow") or _has(item, "learning")]
    for item in slow:
        item.add_marker(pytest.mark.timeout(LONG_S))
    if NAME == "jax":
        slow = [item for item in slow if _has(item, "backends") or _has(item, "learning")]
    left = left_out(slow, os.environ.get("SEEDBED_TEST_PART", "all"))
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


def _is_slow(item: pytest.Item, cases: Counter[str]) -> bool:
    """Return whether a test is slow by `slow_after`, or here on JAX.

    On JAX, where most of the time is compiling, that is every case of a test but the first.
    """
    test = item.nodeid.partition("[")[0]
    cases[test] += 1
    if NAME == "jax" and (_has(item, "slow_on_jax") or cases[test] > 1):
        return True
    after = item.get_closest_marker("slow_after")
    return after is not None and cases[test] > after.args[0]


def _has(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


@pytest.fixture(scope="session")
def backend() -> Backend:
    """The backend that SEEDBED_TEST_BACKEND names. A process has one, so the suite runs twice:
    whole with `tensorflow`, and what is marked `backends` with `jax`.
    """
    return backends.use(NAME)
