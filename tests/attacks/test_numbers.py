"""Environments that send wrong numbers: their group loses its stream, and nothing else happens."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.spec import ArraySpec, TimeStep
from tests.support.echo_actor import EchoVectorEnv
from tests.support.null_model import NullLearner, null_learner
from tests.support.raw_wire import Stream
from tests.support.waiting import wait_for


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NullLearner]:
    with null_learner(tmp_path, monkeypatch) as made:
        yield made


class Breaks(EchoVectorEnv):
    """Sends a wrong number at its step `at` and ever after; step 0 is `reset`."""

    def __init__(self, at: int, field: str = "reward", value: float = 3e38) -> None:
        super().__init__()
        self.at, self.field, self.value = at, field, value
        self.closed = 0

    def reset(self) -> TimeStep:
        return self._broken(super().reset())

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        return self._broken(super().step(action))

    def _broken(self, time_step: TimeStep) -> TimeStep:
        if self.steps >= self.at:
            getattr(time_step, self.field)[..., -1] = self.value
        return time_step

    def close(self) -> None:
        self.closed += 1


class Groups:
    """Groups of one actor process, in an event loop of their own."""

    def __init__(self, address: str, *makes: Callable[[], Any], max_failures: int = 10) -> None:
        self.metrics = ActorMetrics()
        self.failure: BaseException | None = None

        async def play() -> None:
            self.loop = asyncio.get_running_loop()
            self.groups = [
                ActorLoop(make, address, f"test/{i}", 30, 30, self.metrics, PLAIN, max_failures)
                for i, make in enumerate(makes)
            ]
            await asyncio.gather(*(group.run() for group in self.groups))

        def run() -> None:
            try:
                asyncio.run(play())
            except BaseException as error:
                self.failure = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        for group in self.groups:
            self.loop.call_soon_threadsafe(group.stop)
        self.thread.join(30)
        assert not self.thread.is_alive()


@contextmanager
def playing(*args: Any, **options: Any) -> Iterator[Groups]:
    groups = Groups(*args, **options)
    try:
        yield groups
        assert groups.failure is None
    finally:
        if groups.thread.is_alive():
            groups.stop()


def test_an_environment_that_breaks_loses_its_stream_and_is_made_anew(
    learner: NullLearner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    healthy = EchoVectorEnv()
    made: list[Breaks] = []

    def make() -> Breaks:
        # The second one breaks with its first observation, the third one never.
        wrong = [(7, "reward", 3e38), (0, "observation", np.nan), (10**9, "reward", 0)]
        made.append(Breaks(*wrong[len(made)]))
        return made[-1]

    with playing(learner.address, lambda: healthy, make) as groups:
        wait_for(lambda: len(made) == 3 and made[2].steps > 20, "its third environments play")
        steps = healthy.steps
        wait_for(lambda: healthy.steps > steps + 20, "the other group plays on")
        # Some of the steps that were collected are of no whole unroll.
        assert learner.counters.discarded_frames > 0
    assert healthy.resets == 1
    assert [each.closed for each in made] == [1, 1, 1]
    assert groups.metrics.environment_failures == {"refused": 2}
    assert learner.telemetry.sessions.stream_errors == {"reward": 1, "observation": 1}
    said = [r.getMessage() for r in caplog.records if r.name.endswith("actor.loop")]
    assert len(said) == 2
    assert "test/1: reward: expected finite numbers of at most 1e+06, received" in said[0]
    assert "environment.max_abs_reward" in said[0]
    assert "observation: expected" in said[1]
    assert "received nan at" in said[1]


def test_an_environment_that_stays_broken_ends_its_actor(learner: NullLearner) -> None:
    made: list[Breaks] = []

    def make() -> Breaks:
        made.append(Breaks(2))
        return made[-1]

    groups = Groups(learner.address, make, max_failures=3)
    groups.thread.join(30)
    assert isinstance(groups.failure, SeedbedError)
    assert groups.failure.code is ExitCode.ENVIRONMENT
    said = str(groups.failure)
    assert "test/0: 3 failures of environments within ten minutes" in said
    assert "actor.max_environment_failures is 3" in said
    assert "reward: expected finite numbers of at most 1e+06" in said
    assert len(made) == 3
    assert all(each.closed == 1 for each in made)
    assert not learner.ended.is_set()


def test_what_else_is_invalid_ends_the_actor_as_before(learner: NullLearner) -> None:
    class Forgets(EchoVectorEnv):
        """A new episode without `first`."""

        def reset(self) -> TimeStep:
            return super().reset()._replace(first=np.zeros(self.num_envs, bool))

    groups = Groups(learner.address, Forgets)
    groups.thread.join(30)
    assert isinstance(groups.failure, SeedbedError)
    assert groups.failure.code is ExitCode.REFUSED_BY_LEARNER
    assert "flags: expected" in str(groups.failure)


def test_an_observation_of_another_environment_is_no_broken_environment(
    learner: NullLearner,
) -> None:
    """The Hello's `observation` is refused under the same name, and that is fatal."""
    with Stream(learner.address) as first:
        first.handshake(2)
        first.play(1)

        class Wider(EchoVectorEnv):
            spec = replace(EchoVectorEnv.spec, observation=ArraySpec((3,), "float32"))

        groups = Groups(learner.address, Wider)
        groups.thread.join(30)
    assert isinstance(groups.failure, SeedbedError)
    assert groups.failure.code is ExitCode.REFUSED_BY_LEARNER
