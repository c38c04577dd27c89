"""A tracker that hangs, refuses or ends the process: training neither waits nor ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from seedbed.runtime import threads
from seedbed.telemetry import aside
from seedbed.telemetry.aside import Aside
from tests.support.waiting import wait_for


@pytest.fixture
def free() -> Iterator[threading.Event]:
    """What a call that hangs waits for."""
    event = threading.Event()
    yield event
    event.set()


def test_a_service_that_hangs_delays_nothing_and_is_told(
    free: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(aside.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(aside, "_MOST", 3)
    monkeypatch.setattr(aside, "_END_S", 0.05)
    monkeypatch.setattr(threads, "left_behind", [])
    hangs, taken, ends = threading.Event(), list[int](), list[int]()

    def call(item: int) -> None:
        hangs.set()
        free.wait()
        taken.append(item)

    service = Aside("service", call, lambda: ends.append(1))
    service.put(1)
    assert hangs.wait(10)
    now[0] = 125.0
    for item in (2, 3, 4):
        service.put(item)  # late, and not yet told
    now[0] = 160.0
    with pytest.raises(TimeoutError, match="no answer for 60 s, 2 intervals left out"):
        service.put(5)
    with pytest.raises(TimeoutError, match=r"no end within 0\.05 s, 3 intervals not sent"):
        service.close()
    assert threads.left_behind, "the process ends without it"
    free.set()
    wait_for(lambda: ends, "the service ends")
    assert taken == [1, 2, 3]


def test_what_failed_is_sent_with_the_next_in_its_order() -> None:
    taken, answers = list[int](), [OSError("refused"), SystemExit(1), None, None]
    made = threading.Semaphore(0)

    def call(item: int) -> None:
        answer = answers.pop(0)
        made.release()
        if answer is not None:
            raise answer
        taken.append(item)

    service = Aside("service", call, list)
    service.put(1)
    made.acquire()
    wait_for(lambda: service._error, "the failure")
    with pytest.raises(OSError, match="refused"):
        service.put(2)
    made.acquire()
    wait_for(lambda: isinstance(service._error, RuntimeError), "the second failure")
    with pytest.raises(RuntimeError, match="SystemExit"):
        service.put(3)
    answers.append(None)
    service.close()
    assert taken == [1, 2, 3]


def test_a_service_that_refuses_to_the_end_is_left() -> None:
    def refuse(item: int) -> None:
        raise ConnectionError(f"no {item}")

    service = Aside("service", refuse, list)
    service.put(1)
    with pytest.raises(ConnectionError, match="no 1"):
        service.close()
    assert not service._thread.is_alive()
