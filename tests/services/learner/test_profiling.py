"""Profiles of a live process: over HTTP and by a signal."""

from __future__ import annotations

import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from keras import ops
from prometheus_client import CollectorRegistry

from seedbed.backends.protocol import Backend
from seedbed.runtime.http import MetricsServer
from seedbed.services.learner import profiling
from seedbed.services.learner.profiling import Profiler

pytestmark = pytest.mark.backends

DEADLINE_S = 60.0


@pytest.fixture
def working(backend: Backend) -> Iterator[None]:
    """A thread that computes all the time."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            ops.convert_to_numpy(ops.matmul(np.ones((50, 50), "f4"), np.ones((50, 50), "f4")))

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join(DEADLINE_S)


def profiles(directory: Path) -> list[Path]:
    """Where TensorBoard looks."""
    return [
        path
        for path in directory.glob("plugins/profile/*/*.xplane.pb")
        if path.stat().st_size > 100
    ]


def test_a_post_answers_when_the_profile_is_written(tmp_path: Path, working: None) -> None:
    profiler = Profiler(tmp_path / "profile", threading.Event())
    server = MetricsServer(0, CollectorRegistry(), profile=profiler.profile)
    try:
        url = f"http://127.0.0.1:{server.port}/profile?seconds=0.2"
        with urllib.request.urlopen(url, data=b"", timeout=DEADLINE_S) as reply:
            assert str(tmp_path / "profile") in reply.read().decode()
    finally:
        server.close()
    assert len(profiles(tmp_path / "profile")) == 1


def test_a_signal_starts_one_and_a_second_one_is_refused(
    tmp_path: Path, working: None, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """It goes on until `stopping`, which also ends a long one early."""
    monkeypatch.setattr(profiling, "SIGNAL_S", DEADLINE_S)
    stopping, started, ended = (threading.Event() for _ in range(3))
    profiler = Profiler(tmp_path / "profile", stopping)
    guarded = profiler._guarded

    def watched() -> None:
        guarded()
        ended.set()

    monkeypatch.setattr(profiler, "_guarded", watched)
    monkeypatch.setattr(
        stopping, "wait", lambda seconds: started.set() or threading.Event.wait(stopping, seconds)
    )
    before = signal.getsignal(signal.SIGUSR1)
    try:
        profiler.profile_on_signal()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert started.wait(DEADLINE_S)
        with pytest.raises(RuntimeError, match="a profile is running"):
            profiler.profile(1.0)
        stopping.set()
        assert ended.wait(DEADLINE_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(profiles(tmp_path / "profile")) == 1
