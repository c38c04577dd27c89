"""SIGTERM ends a learner in any state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seedbed.config import parse_experiment
from seedbed.launch import evaluation, learners
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner import base
from seedbed.telemetry.progress_line import ProgressLine
from tests.support.null_model import null_learner
from tests.support.processes import START_S, cluster, parent
from tests.support.raw_wire import stream
from tests.support.waiting import wait_for

LIMIT_S = 10.0


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_build_that_hangs_does_not_outlive_sigterm(tmp_path: Path, deterministic: bool) -> None:
    with cluster(
        tmp_path,
        "learner.network=tests.support.hanging_network:Hangs",
        f"learner.deterministic={str(deterministic).lower()}",
        "actor.processes=1",
    ) as it:
        train = it.train()
        wait_for(lambda: "the build hangs" in train.said, f"it hangs: {train.said}", START_S)
        actors = train.children()
        train.send(signal.SIGTERM)
        assert train.wait(LIMIT_S) == ExitCode.TERMINATED, train.said
        assert "Traceback" not in train.said
        assert deterministic or train.summary()["stop_reason"] == "signal SIGTERM"
        assert not [pid for pid in actors if parent(pid)]


def test_an_update_under_way_may_finish_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SIGNAL_JOIN_S", 0.1)
    with null_learner(tmp_path, monkeypatch) as learner:
        entered, gate = threading.Event(), threading.Event()
        train = learner.training.train

        def slow(*arguments: Any) -> None:
            train(*arguments)
            if learner.counters.updates == 2:
                entered.set()
                assert gate.wait(30)

        monkeypatch.setattr(learner.training, "train", slow)
        with stream(learner.address) as actor:
            while not entered.is_set():
                actor.play()
            learner.stop("signal SIGTERM")
            wait_for(lambda: learner.threads.stopping.is_set(), "it ends")
            assert not learner.ended.wait(0.5)
            gate.set()
        wait_for(learner.ended.is_set, "it has ended")
        assert learner.failure is None
        assert learner.run_directory.store.names()


@pytest.mark.slow
def test_what_is_lost_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "SIGNAL_JOIN_S", 0.1)
    monkeypatch.setattr(base, "JOIN_TIMEOUT_S", 0.2)
    gate = threading.Event()
    with null_learner(tmp_path, monkeypatch, may_fail=True) as learner:
        entered = threading.Event()
        train = learner.training.train

        def hangs(*arguments: Any) -> None:
            train(*arguments)
            if learner.counters.updates == 2:
                entered.set()
                gate.wait(30)

        monkeypatch.setattr(learner.training, "train", hangs)
        with stream(learner.address) as actor:
            while not entered.is_set():
                actor.play()
            learner.stop("signal SIGTERM")
            wait_for(learner.ended.is_set, "it has ended")
        gate.set()
        assert isinstance(learner.failure, SeedbedError)
        assert learner.failure.code is ExitCode.THREAD_STUCK
        assert "training" in str(learner.failure)


def test_the_last_evaluation_of_several_learners_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping, started = threading.Event(), []

    def start(*_: Any, **options: Any) -> subprocess.Popen[bytes]:
        shows = """print('{"progress": {"ended": 3, "episodes": 20, "mean": 7}}', flush=True)"""
        command = [sys.executable, "-c", f"import threading; {shows}; threading.Event().wait()"]
        started.append(subprocess.Popen(command, env=dict(os.environ), **options))
        return started[0]

    class Line(ProgressLine):
        def show(self, parts: Sequence[str]) -> None:
            if "3 of 20 episodes, mean 7 so far" in parts[0]:
                stopping.set()

    monkeypatch.setattr(evaluation, "start_seedbed", start)
    experiment = parse_experiment("{name: x, environment: {id: CartPole-v1}}", ())
    with open_run_directory(tmp_path / "run", experiment) as run:
        assert learners._evaluate(experiment, run, stopping, Line(sys.stderr)) is None
    assert started[0].returncode == -signal.SIGKILL
    assert "a signal came" in caplog.text
