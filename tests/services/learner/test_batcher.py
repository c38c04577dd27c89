"""When a batch goes, and what is in it.

Waits are so long here (`LONG_S`) that a batch which went because of its deadline would fail the
test by its time limit; only the tests of the deadline itself have a short one.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from seedbed.services.learner.sessions.batcher import Batcher, Request

LONG_S = 1000.0
DEADLINE_S = 30.0


def request(num_envs: int) -> Request:
    nothing: Any = None
    return Request(nothing, num_envs, False, nothing, nothing)


class Taker:
    """`take` in a thread, as the inference thread does."""

    def __init__(self, batcher: Batcher, timeout_s: float = LONG_S) -> None:
        self._result: list[Request] | None = None

        def take() -> None:
            self._result = batcher.take(timeout_s)

        self._thread = threading.Thread(target=take, daemon=True)
        self._thread.start()

    def batch(self) -> list[Request]:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "no batch went"
        assert self._result is not None
        return self._result

    @property
    def waits(self) -> bool:
        # A wake-up that wrongly gives a batch takes no longer than this.
        self._thread.join(0.05)
        return self._thread.is_alive()


def connected(target: int, sessions: int, environments: int, max_batch: int = 64) -> Batcher:
    batcher = Batcher(target, max_batch, LONG_S)
    batcher.set_connected(sessions, environments)
    return batcher


def test_full_goes_without_those_that_are_missing() -> None:
    batcher = connected(8, sessions=10, environments=40)
    taker, first, second = Taker(batcher), request(4), request(4)
    batcher.submit(first)
    assert taker.waits
    batcher.submit(second)
    assert taker.batch() == [first, second]


def test_zero_is_half_of_those_connected() -> None:
    batcher = connected(0, sessions=4, environments=16)
    taker, first, second = Taker(batcher), request(4), request(4)
    batcher.submit(first)
    assert taker.waits
    batcher.submit(second)
    assert taker.batch() == [first, second]


def test_everyone_here_goes_before_it_is_full() -> None:
    batcher = connected(64, sessions=2, environments=8)
    taker, first, second = Taker(batcher), request(4), request(4)
    batcher.submit(first)
    assert taker.waits
    batcher.submit(second)
    assert taker.batch() == [first, second]


def test_nobody_waits_for_a_session_that_has_left() -> None:
    batcher = connected(64, sessions=2, environments=8)
    taker, only = Taker(batcher), request(4)
    batcher.submit(only)
    assert taker.waits
    batcher.set_connected(1, 4)
    assert taker.batch() == [only]


def test_nobody_waits_for_a_session_that_waits_for_room() -> None:
    batcher = connected(64, sessions=3, environments=12)
    taker, first, second = Taker(batcher), request(4), request(4)
    batcher.submit(first)
    batcher.submit(second)
    assert taker.waits
    batcher.pause()
    assert taker.batch() == [first, second]
    batcher.on_done([first, second])
    batcher.resume()
    again = Taker(batcher)
    batcher.submit(request(4))
    assert again.waits


def test_deadline_of_the_oldest() -> None:
    wait_s = 0.05
    batcher = Batcher(64, 64, wait_s)
    batcher.set_connected(9, 36)
    only = request(4)
    batcher.submit(only)
    assert batcher.take(LONG_S) == [only]
    assert time.perf_counter() - only.arrived >= wait_s


def test_a_deadline_that_has_passed_takes_at_once() -> None:
    batcher = Batcher(64, 64, 0.0)
    batcher.set_connected(9, 36)
    first, second = request(4), request(4)
    batcher.submit(first)
    batcher.submit(second)
    assert batcher.take(LONG_S) == [first, second]


def test_requests_stay_whole_and_in_order() -> None:
    batcher = connected(0, sessions=4, environments=40, max_batch=20)
    requests = [request(num_envs) for num_envs in (10, 8, 4, 18)]
    for item in requests:
        batcher.submit(item)
    # 10 + 8 + 4 would be more than 20, and no request overtakes another.
    assert batcher.take(LONG_S) == requests[:2]
    batcher.set_connected(2, 22)
    assert batcher.take(LONG_S) == requests[2:3]
    batcher.set_connected(1, 18)
    assert batcher.take(LONG_S) == requests[3:]
    assert batcher.depth == 0


def test_more_than_the_largest_batch_is_full() -> None:
    """A target above `max_batch` would never be reached."""
    batcher = connected(0, sessions=50, environments=400, max_batch=20)
    requests = [request(10) for _ in range(3)]
    for item in requests:
        batcher.submit(item)
    assert batcher.take(LONG_S) == requests[:2]


def test_a_request_taken_back_is_in_no_batch_and_counts_for_none() -> None:
    batcher = connected(8, sessions=5, environments=20)
    gone, first, second = request(4), request(4), request(4)
    batcher.submit(gone)
    assert batcher.cancel(gone)
    assert not batcher.cancel(gone)
    taker = Taker(batcher)
    batcher.submit(first)
    assert taker.waits  # 4 environments of 8, not 8
    batcher.submit(second)
    assert taker.batch() == [first, second]
    assert not batcher.cancel(first), "it is in a batch"


def test_nothing_to_do() -> None:
    batcher = connected(8, sessions=1, environments=4)
    assert batcher.take(0.01) == []
    assert batcher.oldest_wait_s() == 0.0


def test_close_lets_the_taker_go() -> None:
    batcher = connected(8, sessions=2, environments=8)
    batcher.submit(request(4))
    taker = Taker(batcher)
    assert taker.waits
    batcher.close()
    assert taker.batch() == []


def test_oldest_wait_counts_since_the_last_batch() -> None:
    """A request that waits behind a long batch is no sign of a thread that takes none."""
    batcher = connected(4, sessions=9, environments=36, max_batch=4)
    old, older = request(4), request(4)
    old.arrived = older.arrived = time.perf_counter() - 100
    batcher.submit(older)
    assert batcher.oldest_wait_s() < DEADLINE_S  # nothing was there to take before
    batcher.submit(old)
    batcher.take(LONG_S)
    assert batcher.oldest_wait_s() < DEADLINE_S


@pytest.mark.parametrize("seed", range(3))
def test_every_request_is_taken_once(seed: int) -> None:
    """Many threads submit, some take back; nothing is lost, doubled or too large."""
    batcher = Batcher(16, 24, 0.001)
    sessions = 12
    batcher.set_connected(sessions, 4 * sessions)
    taken: list[Request] = []
    cancelled: list[Request] = []
    sent: list[Request] = []
    done = threading.Event()

    def submit(number: int) -> None:
        for i in range(200):
            item = request(1 + (number + i) % 7)
            sent.append(item)
            batcher.submit(item)
            if (number * i + seed) % 5 == 0 and batcher.cancel(item):
                cancelled.append(item)

    def take() -> None:
        while not (done.is_set() and batcher.depth == 0):
            batch = batcher.take(0.01)
            assert sum(item.num_envs for item in batch) <= 24
            taken.extend(batch)

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    submitters = [threading.Thread(target=submit, args=(n,), daemon=True) for n in range(4)]
    for thread in submitters:
        thread.start()
    for thread in submitters:
        thread.join(DEADLINE_S)
    done.set()
    taker.join(DEADLINE_S)
    assert not taker.is_alive()
    assert len(taken) + len(cancelled) == len(sent) == 800
    assert {*map(id, taken), *map(id, cancelled)} == {*map(id, sent)}
