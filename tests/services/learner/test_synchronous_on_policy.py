"""A2C's batches over the real wire: every row of every batch was acted by the parameters that it
trains, whoever comes and goes, and all environments that are there are in it, once.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.config import Experiment, parse_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.single_threaded import SingleThreadedLearner
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.services.learner.unrolls.synchronous_queue import STRAGGLER
from seedbed.spec import FIRST, TimeStep
from tests.support.pattern_env import NAME, PatternVectorEnv
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.backends]

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
T, B = 4, 12
SHAPE = (6,)


def experiment(*overrides: str) -> Experiment:
    return parse_experiment(
        f"""
        name: rounds
        environment: {{id: "{NAME}"}}
        agent: a2c
        learner:
          backend: {BACKEND}
          network: mlp
          frame_stack: 2
          unroll_length: {T}
          batch_size: {B}
          straggler_timeout_s: 30
          inference: {{max_wait_ms: 2, slots: 64, max_batch_envs: 16}}
        actor: {{processes: 0, envs_per_group: 4}}
        logging: {{interval_s: 1000}}
        """,
        overrides,
    )


class Seen(NamedTuple):
    """What training saw of a batch."""

    newest: int  # version of the parameters before the update
    versions: set[float]  # that acted in its columns
    environments: list[int]  # the numbers of those in it, without padding
    starts: dict[int, int]  # each environment's counter in row 0
    ends: dict[int, int]  # and in row T


class Watch:
    """Observes training."""

    def __init__(self, learner: Learner) -> None:
        self.batches: list[Seen] = []
        self._learner = learner
        learner.training.observers.append(self._observe)

    def _observe(self, batch: TrainingBatch) -> None:
        flags, rows = batch.arrays["flags"], batch.arrays["observation"][-T - 1 :]
        there = ~((flags & FIRST) != 0).all(axis=0)
        numbers = rows[0, there, 0].round().astype(int).tolist()
        counters = rows[:, there, 1].round().astype(int)
        version = self._learner.store.newest()[1]
        assert version == self._learner.counters.updates
        self.batches.append(
            Seen(
                version,
                set(batch.version.tolist()),
                sorted(numbers),
                dict(zip(numbers, counters[0].tolist(), strict=True)),
                dict(zip(numbers, counters[-1].tolist(), strict=True)),
            )
        )

    def wait(self, *environments: int) -> None:
        """Until a batch, of those to come, has exactly these environments."""
        begin = len(self.batches)
        wait_for(
            lambda: any(b.environments == sorted(environments) for b in self.batches[begin:]),
            f"a batch of {sorted(environments)}: {self.batches[-1:]}",
        )

    def check(self) -> None:
        """Every batch is of the newest parameters, and follows on the one before."""
        assert len(self.batches) > 10
        for batch in self.batches:
            assert batch.versions == {batch.newest}
            assert len(set(batch.environments)) == len(batch.environments)
        for before, after in zip(self.batches, self.batches[1:], strict=False):
            assert after.newest == before.newest + 1
            for number in set(before.environments) & set(after.environments):
                if after.starts[number] >= before.ends[number]:  # else it has come anew
                    assert after.starts[number] == before.ends[number]


class GatedGroup(PatternVectorEnv):
    """Stands still, where it is told to, after two of a block's four steps."""

    def __init__(self, environments: int, number: int) -> None:
        super().__init__(environments, number, SHAPE, "float32")
        self._steps = 0
        self.may_go = threading.Event()
        self.may_go.set()
        self.stands = threading.Event()

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        self._steps += 1
        if self._steps % T == 3 and not self.may_go.is_set():
            self.stands.set()
            assert self.may_go.wait(60)
        return super().step(action)


class Actors:
    """Runs groups in an event loop of a thread of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._running: dict[GatedGroup, Future[None]] = {}

    def join(self, environments: int, number: int) -> GatedGroup:
        group = GatedGroup(environments, number)
        runner = ActorLoop(
            lambda: group, self._address, f"test/{number}", 60.0, 60.0, ActorMetrics()
        )
        self._running[group] = asyncio.run_coroutine_threadsafe(runner.run(), self._loop)
        return group

    def leave(self, group: GatedGroup) -> None:
        """Its stream is cut, in the middle of a step."""
        task = self._running.pop(group)

        async def cut() -> None:
            task.cancel()
            for _ in range(5):  # turns of the event loop, in which the stream ends
                await asyncio.sleep(0)
            group.may_go.set()

        asyncio.run_coroutine_threadsafe(cut(), self._loop).result(60)

    def close(self) -> None:
        for group in list(self._running):
            self.leave(group)
        asyncio.run_coroutine_threadsafe(self._all_ended(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    async def _all_ended(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def running(path: Path, config: Experiment, **options: Any) -> Iterator[tuple[Learner, Actors]]:
    with open_run_directory(path / "run", config) as run:
        learner = Learner(config, run, f"unix:{run.socket}", **options)
        actors = Actors(learner.start())
        try:
            yield learner, actors
        finally:
            learner.stop("enough")
            actors.close()
            learner.run()
        counters = learner.counters
        assert counters.env_frames == counters.trained_frames + counters.discarded_frames


def test_every_batch_is_on_policy_whoever_comes_and_goes(tmp_path: Path) -> None:
    a, b, c, d = [10, 11, 12, 13], [20], [30, 31, 32], [40, 41, 42, 43]
    with running(tmp_path, experiment()) as (learner, actors):
        watch = Watch(learner)
        leaves = actors.join(4, 10)
        actors.join(1, 20)
        hangs = actors.join(3, 30)
        actors.join(4, 40)
        watch.wait(*a, *b, *c, *d)
        first = watch.batches[0]
        assert first.environments == sorted(a + b + c + d), "nobody was left out at the start"
        late = learner.telemetry.sessions.discarded_by_reason
        assert not late

        # One leaves in mid-round, while the others wait for it: after the deadline they go on.
        leaves.may_go.clear()
        assert leaves.stands.wait(30)
        wait_for(lambda: learner.queue.unrolls == 8, "the others wait")
        updates = learner.counters.updates
        learner.queue._straggler_timeout_s = 0.2
        actors.leave(leaves)
        watch.wait(*b, *c, *d)
        wait_for(lambda: learner.counters.updates > updates, "an update without it")
        assert 0 < late["session ended"] <= 2 * 2 * len(a), "two steps of two frames each"
        learner.queue._straggler_timeout_s = 30.0

        # One comes in its place.
        actors.join(4, 50)
        watch.wait(*b, *c, *d, 50, 51, 52, 53)

        # One hangs past the deadline, and comes to itself.
        hangs.may_go.clear()
        assert hangs.stands.wait(30)
        wait_for(lambda: learner.queue.unrolls == 9, "the others wait")
        learner.queue._straggler_timeout_s = 0.2
        watch.wait(*b, *d, 50, 51, 52, 53)
        learner.queue._straggler_timeout_s = 30.0
        before = late[STRAGGLER]
        hangs.may_go.set()
        watch.wait(*b, *c, *d, 50, 51, 52, 53)
        assert late[STRAGGLER] > before
        begin = len(watch.batches)
        wait_for(lambda: len(watch.batches) > begin + 5, "rounds")
        full = watch.batches[begin:]
        assert all(len(batch.environments) == B for batch in full), "nobody stays left out"
    watch.check()
    assert learner.telemetry.training.recent_lag.mean(10) == 0


@pytest.mark.slow
def test_rounds_of_a_frozen_learner(tmp_path: Path) -> None:
    with running(tmp_path, experiment(), frozen=True) as (learner, actors):
        sizes: list[int] = []
        learner.training.observers.append(lambda batch: sizes.append(batch.steps))
        actors.join(5, 10)
        actors.join(7, 20)
        wait_for(lambda: len(sizes) > 5, "rounds")
        assert learner.store.newest()[1] == 0
        assert not learner.telemetry.sessions.discarded_by_reason


@pytest.mark.slow
def test_in_one_thread_everybody_is_answered_after_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two actors, so two inference batches: neither acts before both blocks are trained on."""

    def make(_: Experiment, actor: int, group: int) -> PatternVectorEnv:
        return PatternVectorEnv(3, 100 * actor + 10 * group, SHAPE, "float32")

    monkeypatch.setattr("seedbed.services.learner.single_threaded.make_actor_env", make)
    config = experiment(
        "learner.deterministic=true", "actor={processes: 2, groups: 2, envs_per_group: 3}",
        "stop.updates=15", "evaluation.at_end=false",
    )  # fmt: skip
    with open_run_directory(tmp_path / "run", config) as run:
        learner = SingleThreadedLearner(config, run)
        watch = Watch(learner)
        learner.run()
    watch.check()
    assert all(len(batch.environments) == B for batch in watch.batches)


@pytest.mark.slow
def test_an_agent_of_the_users_has_rounds_too(tmp_path: Path) -> None:
    config = experiment("agent=tests.support.sure_agent:SureA2c")
    with running(tmp_path, config) as (learner, actors):
        watch = Watch(learner)
        actors.join(5, 10)
        actors.join(7, 20)
        wait_for(lambda: len(watch.batches) > 11, "rounds")
    watch.check()


def test_an_agent_of_the_users_that_cannot_have_its_rounds(tmp_path: Path) -> None:
    config = experiment("agent=tests.support.sure_agent:SureA2c", "learner.epochs_per_batch=2")
    with (
        open_run_directory(tmp_path / "run", config) as run,
        pytest.raises(
            SeedbedError, match=r"learner.epochs_per_batch 2: .*SureA2c is on-policy"
        ) as error,
    ):
        Learner(config, run, f"unix:{run.socket}")
    assert error.value.code is ExitCode.CONFIG
