"""Actors over several learners, over real sockets: spread, refused, left alone, called back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor import learner_selection
from seedbed.services.learner.sessions.slots import SlotAllocator
from tests.support.echo_actor import Actor
from tests.support.null_model import NullLearner, null_learner
from tests.support.processes import free_port
from tests.support.waiting import wait_for

E = 3  # environments of an actor here


class Scene:
    """Learners at fixed addresses, that come and go, and actors that know all of them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self._path, self._monkeypatch = path, monkeypatch
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        self.learners: dict[int, NullLearner] = {}
        self.actors: list[Actor] = []
        self._stacks: dict[int, ExitStack] = {}
        self._started = 0

    def start(self, rank: int, slots: int = 64, train: bool = True) -> NullLearner:
        stack = self._stacks[rank] = ExitStack()
        self._started += 1
        self.learners[rank] = stack.enter_context(
            null_learner(
                self._path / str(self._started),
                self._monkeypatch,
                f"learner.inference.slots={slots}",
                "learner.notice_interval_s=0.5",
                "learner.inference.max_batch_envs=3",
                "actor.processes=0",
                listen=self.addresses[rank],
                train=train,
            )
        )
        return self.learners[rank]

    def stop(self, rank: int) -> None:
        del self.learners[rank]
        self._stacks.pop(rank).close()

    def actor(self, **options: Any) -> Actor:
        made = Actor(",".join(self.addresses), name=f"test/{len(self.actors)}", **options)
        self.actors.append(made)
        return made

    def spread(self) -> list[int]:
        """Actors of each learner that is there, in the order of their ranks."""
        return [self.learners[rank].telemetry.sessions.connected for rank in sorted(self.learners)]

    def spreads(self, wanted: list[int]) -> None:
        wait_for(lambda: self.spread() == wanted, f"{wanted}: {self.spread()}")

    def close(self) -> None:
        for actor in self.actors:
            if actor.thread.is_alive():
                actor.stop()
        for rank in list(self.learners):
            self.stop(rank)


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(tmp_path, monkeypatch, 3)
    yield scene
    scene.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that could move poll often."""
    monkeypatch.setattr(learner_selection, "POLL_INTERVAL_S", 0.2)


def test_six_actors_one_after_the_other(three: Scene) -> None:
    for rank in range(3):
        three.start(rank)
    for number in range(6):
        three.actor()
        wait_for(lambda number=number: sum(three.spread()) == number + 1, "it joins")
        assert max(three.spread()) - min(three.spread()) <= 1
    for actor in three.actors:
        actor.goes_on()
    assert three.spread() == [2, 2, 2]
    assert reconnects(three) == [0] * 6, "each was accepted at once"


@pytest.mark.slow
def test_six_actors_at_once_are_even_after_a_while_and_then_stay(
    three: Scene, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[str] = Counter()
    ask = learner_selection.LearnerSelection._ask

    async def counted(self: learner_selection.LearnerSelection) -> Any:
        looks[self._name] += 1
        return await ask(self)

    monkeypatch.setattr(learner_selection.LearnerSelection, "_ask", counted)
    for rank in range(3):
        three.start(rank)
    for _ in range(6):
        three.actor()

    def settled() -> bool:
        """Even, and no group moves during three polls of all of them."""
        three.spreads([2, 2, 2])
        resets = [actor.group.resets for actor in three.actors]
        goal = {name: number + 3 for name, number in looks.items()}
        wait_for(lambda: all(looks[name] >= goal[name] for name in goal), "all have looked")
        return [actor.group.resets for actor in three.actors] == resets

    wait_for(settled, "no group moves any more")
    assert three.spread() == [2, 2, 2]
    assert [actor.failure for actor in three.actors] == [None] * 6
    # What a move cost is counted: no frame is lost without a word.
    for rank in range(3):
        counters = three.learners[rank].counters
        assert counters.env_frames >= counters.trained_frames + counters.discarded_frames


def test_a_full_learner_is_left_out(three: Scene) -> None:
    three.start(0, slots=E + 1)
    for rank in (1, 2):
        three.start(rank, slots=2 * E)
    for number in range(5):
        three.actor()
        wait_for(lambda number=number: sum(three.spread()) == number + 1, "it joins")
    assert three.spread() == [1, 2, 2]
    assert [learner.telemetry.sessions.stream_errors for learner in three.learners.values()] == [
        {}
    ] * 3


def reconnects(scene: Scene) -> list[Any]:
    return [a.metrics.reconnects for a in scene.actors]


class OverstatedSlots(SlotAllocator):
    """Reports free slots that it does not have, as when another actor is always quicker."""

    @property
    def available(self) -> int:
        return 99


def test_who_is_refused_for_slots_tries_the_others(three: Scene) -> None:
    full = three.start(0)
    full.servicer._slots = OverstatedSlots(0)
    for rank in (1, 2):
        three.start(rank, slots=E)
    for number in range(2):
        three.actor().goes_on()
        assert three.spread()[0] == 0
        assert full.telemetry.sessions.stream_errors == {"slots": number + 1}, (
            "each was refused once"
        )
    assert three.spread() == [0, 1, 1]


def test_a_learner_dies_and_its_actors_go_to_the_others_and_back(three: Scene, soon: None) -> None:
    for rank in range(3):
        three.start(rank)
    for _ in range(6):
        three.actor()
    three.spreads([2, 2, 2])
    three.stop(1)
    three.spreads([3, 3])
    for actor in three.actors:
        actor.goes_on()
    three.start(1)
    three.spreads([2, 2, 2])
    for actor in three.actors:
        actor.goes_on()


@pytest.mark.slow
def test_an_actor_leaves_a_learner_that_does_not_answer(
    three: Scene, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where one host of a learner waits for the other one, which starts after it."""
    full = three.start(0, train=False)
    for _ in range(2):
        three.actor()
    wait_for(lambda: full.telemetry.waiting(), "the queue of unrolls is full")
    monkeypatch.undo()  # the other one trains
    monkeypatch.setattr(learner_selection, "POLL_INTERVAL_S", 0.2)
    other = three.start(1)
    three.spreads([1, 1])
    wait_for(lambda: other.counters.env_frames > 0, "the other one is acted for")


def test_a_learner_that_ends_is_no_choice(three: Scene) -> None:
    """It reports that it stops: its slots are free, but not available."""
    for rank in range(3):
        three.start(rank)
    three.learners[0].servicer._ending = "a signal"
    for _ in range(4):
        three.actor().goes_on()
    assert three.spread() == [0, 2, 2]
    assert reconnects(three) == [0] * 4


def test_who_was_refused_by_all_tries_again(three: Scene) -> None:
    full = three.start(1)
    slots, full.servicer._slots = full.servicer._slots, OverstatedSlots(0)
    actor = three.actor()
    wait_for(lambda: full.telemetry.sessions.stream_errors.get("slots", 0) >= 2, "refused twice")
    full.servicer._slots = slots
    actor.goes_on()


def test_a_learner_that_is_the_only_one_is_tried_with_pauses() -> None:
    actor = Actor(f"127.0.0.1:{free_port()}", connect_s=0.5)
    actor.thread.join(30)
    assert isinstance(actor.failure, SeedbedError)
    assert actor.metrics.reconnects <= 3


def test_all_are_full(three: Scene) -> None:
    for rank in range(2):
        three.start(rank, slots=E)
    for _ in range(2):
        three.actor().goes_on()
    late = three.actor(connect_s=0.5)
    late.thread.join(30)
    assert isinstance(late.failure, SeedbedError)
    assert late.failure.code == ExitCode.LEARNER_UNREACHABLE
    for address in three.addresses:
        assert address in str(late.failure)
    assert "no learner has room for 3 environments" in str(late.failure)
    assert "has 0 of 3 slots free" in str(late.failure)
    assert "does not answer (UNAVAILABLE" in str(late.failure)
    patient = three.actor()
    three.actors[0].stop()
    patient.goes_on()
    assert three.spread() == [1, 1]


def test_groups_that_start_together_spread_over_learners_that_are_alike() -> None:
    names = [f"learner-{rank}:8470" for rank in range(3)]
    rooms = [learner_selection.SlotStatus(name, 0, 64) for name in names]
    chosen: Counter[str] = Counter()
    for actor in range(100):
        for group in range(2):
            of = learner_selection.LearnerSelection("unused", f"host-{actor}/1/7/{group}")
            chosen[min(rooms, key=of._order).address] += 1
    assert len(chosen) == 3
    assert min(chosen.values()) > 40


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("pong-learner-0.pong-learner.rl.svc:8470", ["pong-learner-0.pong-learner.rl.svc:8470"]),
        ("a:1,b.c:22,[::1]:3", ["a:1", "b.c:22", "[::1]:3"]),
        ("unix:/runs/a,b/x.sock", ["unix:/runs/a,b/x.sock"]),
        ("unix:/runs/a,b/0,unix:/runs/a,b/1", ["unix:/runs/a,b/0", "unix:/runs/a,b/1"]),
    ],
)
def test_addresses(text: str, addresses: list[str]) -> None:
    assert learner_selection.LearnerSelection(text, "x")._addresses == addresses
