"""Bad days of a learner with a real model, in this process: its parts, not its signals."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.config import Experiment, parse_experiment
from seedbed.envs import make_vector_env
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.services.learner import base
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.training.thread import TrainingThread
from tests.support.faulty_environments import Explodes
from tests.support.null_model import null_learner
from tests.support.processes import EXPERIMENT, START_S
from tests.support.raw_wire import stream
from tests.support.waiting import wait_for

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
ENVIRONMENTS = "tests.support.faulty_environments"


def experiment(*overrides: str) -> Experiment:
    quiet = ("logging.interval_s=1000", f"learner.backend={BACKEND}")
    line = f"environment.id={ENVIRONMENTS}:Line"
    return parse_experiment(EXPERIMENT, [*quiet, line, *overrides])


class Run:
    """A started learner with an actor's two groups.

    Attributes:
        ended: set when `run` is over; then there is `summary` or `failure`.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.ended = threading.Event()
        self.summary: dict[str, Any] = {}
        self.failure: SeedbedError | None = None
        address = learner.start()
        self._threads = [
            threading.Thread(target=self._watch, daemon=True),
            threading.Thread(target=asyncio.run, args=(self._play(address),), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        try:
            self.summary = self.learner.run()
        except SeedbedError as error:
            self.failure = error
        self.ended.set()

    async def _play(self, address: str) -> None:
        config = self.learner.experiment
        e = config.actor.envs_per_group

        def runner(group: int) -> ActorLoop:
            seeds = list(range(10 * group, 10 * group + e))
            make = partial(make_vector_env, config.environment, e, 1, seeds, max_failures=10)
            return ActorLoop(make, address, f"test/{group}", 60, 60, ActorMetrics())

        runners = [asyncio.create_task(runner(group).run()) for group in range(2)]
        while not self.ended.is_set():
            await asyncio.wait(runners, timeout=0.1)
        for task in runners:
            task.cancel()
        await asyncio.gather(*runners, return_exceptions=True)

    def trains(self, updates: int = 5) -> None:
        goal = self.learner.counters.updates + updates
        wait_for(
            lambda: self.ended.is_set() or self.learner.counters.updates >= goal, "updates", START_S
        )
        assert not self.ended.is_set(), self.failure or self.summary

    def end(self) -> None:
        assert self.ended.wait(START_S), "it does not end"
        for thread in self._threads:
            thread.join(START_S)
            assert not thread.is_alive()


@contextmanager
def running(path: Path, *overrides: str) -> Iterator[Run]:
    config = experiment(*overrides)
    with open_run_directory(path / "run", config) as directory:
        run = Run(Learner(config, directory, f"unix:{directory.socket}"))
        try:
            yield run
        finally:
            run.learner.stop("the test is over")
            run.end()


def test_losses_that_stay_infinite_end_the_run_and_spare_the_checkpoint(tmp_path: Path) -> None:
    overrides = (
        f"environment.id={ENVIRONMENTS}:Explodes",
        "environment.max_abs_reward=3.4e38",
        "learner.checkpoint.every_s=0.05",
    )
    Explodes.now.clear()
    with running(tmp_path, *overrides) as run:
        run.trains()
        wait_for(lambda: run.learner.telemetry.checkpoints.written > 1, "checkpoints", START_S)
        Explodes.now.set()
        assert run.ended.wait(START_S)
        assert run.failure is not None
        assert run.failure.code == ExitCode.DIVERGED
        assert re.match(r"10 updates in a row were skipped .* loss (inf|nan)", str(run.failure))
        assert "learner.optimizer.learning_rate" in str(run.failure)
        store = run.learner.run_directory.store
        newest = store.newest()
        assert newest is not None
        assert newest.updates == run.learner.counters.updates
        assert all(np.isfinite(array).all() for array in newest.arrays.values())


@pytest.mark.slow
def test_a_stop_while_the_model_is_built_ends_the_peers_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that stops before it has met its peers has nobody to close their server for it."""
    building, joining = threading.Event(), threading.Event()
    sockets = [f"unix:{tmp_path}/{rank}.sock" for rank in range(2)]
    join = base.make_exchange

    def late(*arguments: Any) -> Any:
        building.set()
        assert joining.wait(START_S)
        return join(*arguments)

    monkeypatch.setattr(base, "make_exchange", late)
    with running(tmp_path, "gossip.replicas=2", f"gossip.addresses={sockets}") as run:
        wait_for(building.is_set, "the model is being built", START_S)
        threads = run.learner.threads
        ended = threads.join
        monkeypatch.setattr(threads, "join", lambda s: (joining.set(), ended(s))[1])
        run.learner.stop("the test says so")
        run.end()
        assert run.failure is None, run.failure


@pytest.mark.slow
def test_parameters_that_are_infinite_are_not_saved(tmp_path: Path) -> None:
    """A step may leave them behind a finite loss; the next loss would tell, but a save may come."""
    with running(tmp_path, "learner.checkpoint.every_s=1000") as run:
        run.trains()
        run.learner.checkpointer.request()
        store = run.learner.run_directory.store
        wait_for(store.newest, "a checkpoint")
        before = store.newest()
        assert before is not None
        built = run.learner.components.result(0)
        assert built is not None
        state = built.trainer.state

        def bad() -> dict[str, Any]:
            return {
                name: np.full_like(array, np.inf) if array.dtype.kind == "f" else array
                for name, array in state().items()
            }

        built.trainer.state = bad  # type: ignore[method-assign]
        run.learner.checkpointer.request()
        assert run.ended.wait(START_S)
        assert run.failure is not None
        assert run.failure.code == ExitCode.DIVERGED
        assert "model/" in str(run.failure) or "optimizer/" in str(run.failure)
        assert run.learner.threads.stopping.is_set(), "it has ended in order"
        after = store.newest()
        assert after is not None
        assert after.updates == before.updates


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(
        tmp_path, "learner.checkpoint.every_s=0.1", "learner.checkpoint.deadline_s=600"
    ) as run:
        folder = Path(run.learner.run_directory.store.directory)
        telemetry = run.learner.telemetry
        wait_for(lambda: telemetry.checkpoints.written > 1, "checkpoints", START_S)
        folder.rename(tmp_path / "aside")
        folder.write_text("the directory's place is taken, so nothing can be written")
        wait_for(lambda: telemetry.checkpoints.failed > 2, "failures", START_S)
        run.trains()
        folder.unlink()
        (tmp_path / "aside").rename(folder)
        written = telemetry.checkpoints.written
        wait_for(lambda: telemetry.checkpoints.written > written + 1, "it recovers", START_S)
        said = "checkpoint not written, for 0 s (learner.checkpoint.deadline_s is 600)"
        assert caplog.text.count(said) == 1, "each series of failures begins at 0 s"


@pytest.mark.slow
def test_frames_do_not_end_a_run_whose_first_batch_is_being_compiled(tmp_path: Path) -> None:
    learner = experiment().learner
    frames = 2 * learner.batch_size * learner.unroll_length
    with running(tmp_path, f"stop.env_frames={frames}") as run:
        assert run.ended.wait(START_S)
        assert run.summary["stop_reason"].startswith("stop.env_frames")
        assert run.summary["updates"] >= 1


STOPS = {
    "updates": ("stop.updates=12", "stop.updates: "),
    "mean_return": ("stop.mean_return=9.5", "stop.mean_return: 10 over 100 episodes, wanted 9.5"),
}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("condition", STOPS)
def test_stop_conditions_of_training(condition: str, tmp_path: Path) -> None:
    override, reason = STOPS[condition]
    with running(tmp_path, override) as run:
        assert run.ended.wait(START_S)
        assert run.failure is None
        assert run.summary["stop_reason"].startswith(reason)
        newest = run.learner.run_directory.store.newest()
        assert newest is not None
        assert newest.meta["finished"] == run.summary["stop_reason"]
        assert newest.meta["counters"]["env_frames"] == run.summary["env_frames"]
        if condition == "updates":
            assert 12 <= run.summary["updates"] < 40


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("stop.seconds=0.3", "stop.seconds: "),
        ("stop.env_frames=30", "stop.env_frames: 30"),
        # Ten thousand dollars a second, nearly: what nobody trains on costs as much.
        ("stop.dollars=1", "stop.dollars: "),
    ],
)
def test_stop_conditions_of_time_frames_and_money(
    override: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = ("cost.cpu_hour=1e6", "cost.cpus=36", "logging.interval_s=0.05")
    began = time.monotonic()
    with null_learner(tmp_path, monkeypatch, override, *costs) as learner:
        if "dollars" not in override:  # seconds are those of training, from the first frame
            with stream(learner.address, 3) as actor:
                actor.play(11)
        assert learner.ended.wait(30)
        assert learner.summary is not None
        assert learner.summary["stop_reason"].startswith(reason)
        if "dollars" in override:
            assert learner.summary["seconds"] == 0
            passed = time.monotonic() - began
            assert 1 <= learner.summary["dollars"] < 36e6 / 3600 * passed


def test_a_part_that_raises_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a defect")

    with (
        null_learner(tmp_path, monkeypatch, may_fail=True) as learner,
        stream(learner.address) as actor,
    ):
        actor.play()
        monkeypatch.setattr(learner.policy, "dispatch", broken)
        with pytest.raises(Exception, match="UNAVAILABLE"):
            actor.play()
        assert learner.ended.wait(30)
    assert isinstance(learner.failure, SeedbedError)
    assert learner.failure.code == ExitCode.THREAD_FAILED
    assert "thread inference failed: KeyError: 'a defect'" in str(learner.failure)
    assert "Traceback" in caplog.text, "a defect has its traceback in the log"


def test_a_part_that_is_stuck_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "learner.watchdog_timeout_s=0.3"
    with (
        null_learner(tmp_path, monkeypatch, limit, may_fail=True) as learner,
        stream(learner.address) as actor,
    ):
        actor.play()
        threading.Event().wait(0.5)  # nobody sends: nothing is stuck
        assert learner.threads.failure is None
        learner.policy.gate.clear()

        def go_on() -> None:
            wait_for(lambda: learner.threads.failure is not None, "the watchdog")
            learner.policy.gate.set()

        threading.Thread(target=go_on).start()
        with pytest.raises(Exception, match="UNAVAILABLE"):
            actor.play(100)  # the batch that the part still ends is answered
        assert learner.ended.wait(30)
    assert isinstance(learner.failure, SeedbedError)
    assert learner.failure.code == ExitCode.THREAD_STUCK
    assert "inference has worked on one batch for" in str(learner.failure)
    assert "learner.watchdog_timeout_s is 0.3" in str(learner.failure)


def test_a_best_checkpoint_that_cannot_be_kept_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        null_learner(tmp_path, monkeypatch) as learner,
        stream(learner.address) as actor,
    ):
        actor.play()
        evaluation = learner.evaluation
        ended: Any = SimpleNamespace(
            checkpoint="checkpoint-000000000001.safetensors",  # deleted meanwhile
            is_running=False,
            result=lambda: {"mean": 1.5, "episodes": 3},
        )
        evaluation._process = ended
        wait_for(lambda: learner.telemetry.evaluation.count, "its result is taken")
        actor.play()
    assert "could not be kept" in caplog.text
    assert evaluation.best is None


def test_resumed_frames_are_conserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way at a checkpoint is discarded when it is resumed, not lost to the sums."""
    with null_learner(tmp_path, monkeypatch) as learner:
        with stream(learner.address, 3) as actor:
            actor.play(11)
            learner.checkpointer.request()
            wait_for(lambda: learner.telemetry.checkpoints.written, "a checkpoint")
        newest = learner.run_directory.store.newest()
        assert newest is not None
        content = Path(newest.path).read_bytes()
    saved = newest.meta["counters"]
    under_way = saved["env_frames"] - saved["trained_frames"] - saved["discarded_frames"]
    assert under_way > 0
    for last in (tmp_path / "run" / "checkpoints").iterdir():
        last.unlink()
    Path(newest.path).write_bytes(content)  # as after kill -9
    status = learner.run_directory.last_counters()
    assert status["dollars"] > saved["dollars"]
    with null_learner(tmp_path, monkeypatch) as learner:
        counters = learner.counters
        # Learning goes on from the checkpoint; time and money are not given back.
        assert counters.seconds >= status["seconds"]
        assert counters.dollars >= status["dollars"]
        assert counters.env_frames == saved["env_frames"]
        assert counters.env_frames == counters.trained_frames + counters.discarded_frames
        with stream(learner.address, 3) as actor:
            actor.play(11)
    assert counters.env_frames == saved["env_frames"] + 30
    assert counters.env_frames == counters.trained_frames + counters.discarded_frames


@pytest.mark.slow
def test_the_frames_of_a_first_update_that_is_not_awaited_are_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends at once, though the update, which compiles, is still under way."""
    monkeypatch.setattr(base, "SIGNAL_JOIN_S", 0.2)
    begun, goes_on = threading.Event(), threading.Event()
    with running(tmp_path) as run:
        learner = run.learner

        def hangs(batch: Any) -> None:
            begun.set()
            goes_on.wait(START_S)

        learner.training.observers.append(hangs)
        wait_for(begun.is_set, "the first update has begun", START_S)
        learner.stop("enough")
        assert run.ended.wait(START_S)
        goes_on.set()
        counters = learner.counters
        assert run.failure is None
        assert counters.updates == 0
        assert counters.env_frames == counters.discarded_frames > 0
        learner.threads.join(START_S)
        assert counters.trained_frames == 0, "it counts no more"


@pytest.mark.slow
def test_an_end_before_the_first_update_of_a_resume_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update compiles while frames end the run: its checkpoint counts them all the same."""
    monkeypatch.setattr(base, "SIGNAL_JOIN_S", 0.2)
    with running(tmp_path) as run:
        run.trains()
    before = run.learner.run_directory.store.newest()
    assert before is not None
    goes_on = threading.Event()

    def compiles(*_: Any) -> None:
        goes_on.wait(START_S)

    monkeypatch.setattr(TrainingThread, "_compile_ahead", compiles)
    limit = f"stop.env_frames={before.meta['counters']['env_frames'] + 1}"
    with running(tmp_path, limit, "evaluation.at_end=false") as run:
        assert run.ended.wait(START_S)
        goes_on.set()
        assert run.failure is None
        frames = run.learner.counters.env_frames
        assert run.summary["env_frames"] == frames > before.meta["counters"]["env_frames"]
    after = run.learner.run_directory.store.newest()
    assert after is not None
    assert after.meta["counters"]["env_frames"] == frames
    assert after.meta["counters"]["updates"] == before.meta["counters"]["updates"]
    assert after.meta["finished"] == run.summary["stop_reason"]
    assert all((after.arrays[name] == array).all() for name, array in before.arrays.items())
    config = experiment(limit)
    with open_run_directory(tmp_path / "run", config, may_be_finished=True) as directory:
        assert directory.finished is not None, "the same command trains no more"


def test_a_run_that_goes_on_has_no_summary_of_its_earlier_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows the run would take it to be over."""
    with null_learner(tmp_path, monkeypatch) as learner:
        learner.run_directory.write_summary({"updates": 3})
        assert learner.summary_if_finished() is None
        assert learner.run_directory.read_summary() is None
