"""Agreement of the hosts of a learner, on texts that threads share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from seedbed.gossip.exchange import ShuttingDown
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.services.learner.hosts.agreement import Agreement, StopNote
from seedbed.services.learner.hosts.totals import HostTotals
from seedbed.telemetry import Counters


class Board:
    """The texts, in memory."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.changed = threading.Condition()
        self.barriers: dict[str, threading.Barrier] = {}


@dataclass
class Shared:
    """One host's view of a board."""

    board: Board
    host: int
    hosts: int
    closed: bool = False

    def put(self, key: str, text: str) -> None:
        with self.board.changed:
            self.board.texts[key] = text
            self.board.changed.notify_all()

    def wait(self, key: str, timeout_s: float) -> str | None:
        with self.board.changed:
            self.board.changed.wait_for(lambda: key in self.board.texts, timeout_s / 20)
            return self.board.texts.get(key)

    def texts(self, folder: str) -> dict[str, str]:
        with self.board.changed:
            found = self.board.texts.items()
            return {k[len(folder) + 1 :]: v for k, v in found if k.startswith(folder + "/")}

    def delete(self, folder: str) -> None:
        with self.board.changed:
            for key in [key for key in self.board.texts if key.startswith(folder + "/")]:
                del self.board.texts[key]

    def barrier(self, name: str, timeout_s: float) -> None:
        with self.board.changed:
            barrier = self.board.barriers.setdefault(name, threading.Barrier(self.hosts))
        try:
            barrier.wait(timeout_s / 20)
        except threading.BrokenBarrierError:
            raise SeedbedError(ExitCode.HOSTS_FAILED, "not all came") from None

    def close(self) -> None:
        self.closed = True


@dataclass
class Host:
    """A host: its agreement, and what a test sets and sees of it."""

    shared: Shared
    counters: Counters = field(default_factory=Counters)
    note: StopNote | None = None
    waited: list[str] = field(default_factory=list)
    is_waiting: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.totals = HostTotals(self.shared.host, self.counters)
        self.agreement = Agreement(
            self.shared,
            lambda: {"counters": self.counters.to_json(), "returns": [0.0, 0]},
            self.totals.learn,
            self.totals.describe,
            lambda: self.note,
            self._waiting,
        )

    def _waiting(self, text: str) -> None:
        if text:
            self.waited.append(text)
            self.is_waiting.set()


def two_hosts(count: int = 2) -> list[Host]:
    board = Board()
    return [Host(Shared(board, host, count)) for host in range(count)]


def together(*parts: Callable[[], Any]) -> list[Any]:
    """Run each part in a thread of its own, and return what they return, or raise."""
    results: list[Any] = [None] * len(parts)

    def run(index: int) -> None:
        try:
            results[index] = parts[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return results


def test_all_step_once_all_have_a_batch() -> None:
    first, second = two_hosts()

    def steps(host: Host) -> Callable[[], int]:
        return lambda: sum(host.agreement.all_go(True) for _ in range(600))

    assert together(steps(first), steps(second)) == [600, 600]
    words = [key for key in first.shared.board.texts if key.startswith("round/")]
    assert len(words) <= 2 * 2 * 256, "the words of old rounds are deleted"


def test_a_late_host_is_named_and_waited_for() -> None:
    first, second = two_hosts()

    def late() -> bool:
        assert not second.agreement.all_go(False), "without a batch it steps in no case"
        assert first.is_waiting.wait(10)
        return second.agreement.all_go(True)

    assert together(lambda: first.agreement.all_go(True), late) == [True, True]
    assert first.waited[0] == "waiting for host 1 to have a batch"
    assert not second.waited


def test_a_host_says_why_it_is_late() -> None:
    totals = HostTotals(0, Counters(), now=lambda: 100.0)
    assert totals.describe(1) == "host 1"
    told = '{"counters": {}, "returns": [0, 0], "waiting_for": "no actors are connected"}'
    totals.learn({1: told})
    assert totals.describe(1) == "host 1 (no actors are connected)"
    totals = HostTotals(0, Counters(), now=iter([100.0, 109.0, 109.0]).__next__)
    totals.learn({1: told})
    assert totals.silent() == "host 1, silent for 9 s"


def test_a_stop_ends_all_at_the_same_step() -> None:
    hosts = two_hosts(3)
    note = StopNote(1, "stop.updates: 7 of 7", "updates")

    def steps(host: Host) -> Callable[[], int]:
        def run() -> int:
            made = 0
            while host.agreement.decision is None:
                if host.shared.host == 1 and made == 7:
                    host.note = note
                    break
                host.agreement.share()
                # The last host has no batch any more.
                has_batch = host.shared.host != 2 or made < 7
                made += host.agreement.all_go(has_batch)
            host.agreement.leave()
            return made

        return run

    assert together(*map(steps, hosts)) == [7, 7, 7]
    assert [host.agreement.decision for host in hosts] == [note, note, note]


def test_hosts_that_have_built_other_models_do_not_meet() -> None:
    first, second = two_hosts()
    found = together(lambda: first.agreement.meet("3 x 4"), lambda: second.agreement.meet("3 x 5"))
    assert [type(error) for error in found] == [ConfigError, ConfigError]
    assert "host 1 has built 3 x 5, and host 0 3 x 4" in str(found[0])


def test_the_wait_for_the_model_ends_with_a_stop() -> None:
    first, second = two_hosts()
    second.note = StopNote(1, "signal SIGTERM")
    together(second.agreement.leave)
    first.agreement.share()
    with pytest.raises(ShuttingDown):
        first.agreement.meet("3 x 4")
    assert first.agreement.decision == second.note


def test_all_wait_for_the_word_of_the_first_host_even_when_another_one_stops() -> None:
    first, second, third = two_hosts(3)
    third.note = StopNote(2, "signal SIGTERM")
    third.agreement.leave()
    second.agreement.share()
    assert second.agreement.decision == third.note

    def late() -> str:
        assert second.is_waiting.wait(10)
        return first.agreement.word_of_first("new")

    assert together(second.agreement.word_of_first, late) == ["new", "new"]
    assert second.waited[0] == "waiting for host 0 to exchange parameters"


def test_the_wait_for_its_word_ends_when_the_first_host_stops() -> None:
    first, second = two_hosts()
    assert together(lambda: first.agreement.all_go(True), lambda: second.agreement.all_go(True))
    first.note = StopNote(0, "learner 1 is lost")
    together(first.agreement.leave)
    (found,) = together(second.agreement.word_of_first)
    assert isinstance(found, ShuttingDown)
    assert second.agreement.decision == first.note


def test_counts_of_all_hosts_are_added_up() -> None:
    first, second = two_hosts()
    first.counters.set_from({"env_frames": 100, "updates": 5, "seconds": 9.0, "dollars": 2.0})
    second.counters.set_from({"env_frames": 40, "updates": 5, "seconds": 1.0, "dollars": 0.0})
    together(lambda: first.agreement.part(30), lambda: second.agreement.part(30))
    assert all(host.shared.closed for host in (first, second))
    for host in (first, second):
        total = host.totals.total()
        assert (total.env_frames, total.updates) == (140, 5)
        assert (total.seconds, total.dollars) == (9.0, 2.0), "of the first host"


def test_a_mean_return_is_of_equal_shares() -> None:
    totals = HostTotals(0, Counters())
    totals.learn({1: '{"counters": {}, "returns": [40.0, 5]}'})
    assert totals.mean_return(lambda n: 2.0 if n == 5 else None, 10) == pytest.approx(5.0)
    assert totals.mean_return(lambda n: None, 10) is None
    assert totals.returns(lambda n: (2.0 * n, n), 10) == (50.0, 10)


def test_a_host_that_does_not_come_to_the_end_is_an_error() -> None:
    first, _ = two_hosts()
    with pytest.raises(SeedbedError, match="not all came"):
        first.agreement.part(1)
    assert not first.shared.closed, "to disconnect alone would end the process"
