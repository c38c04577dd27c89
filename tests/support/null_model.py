"""A real learner with a policy that computes nothing, so that no model library is loaded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import null_learner as null
from seedbed.config import Experiment, parse_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.spec import ArraySpec, StepInputs

ACTIONS = 1000
OBSERVATION = ArraySpec((2,), "float32")
NAME = "Null-v0"
DEADLINE_S = 30.0


def answer(rows: Sequence[StepInputs]) -> Any:
    """Answer with each observation's first number plus one, so that each gets its own."""
    seen = np.concatenate([row.observation[:, 0] for row in rows])
    return ((seen % ACTIONS).astype(np.int32) + 1) % ACTIONS, {}


class NullLearner(null.NullLearner):
    """The learner of a test, with what became of it."""

    address: str
    ended: threading.Event  # then there is `summary` or `failure`
    summary: dict[str, Any] | None = None
    failure: BaseException | None = None


def experiment(*overrides: str) -> Experiment:
    return parse_experiment(
        f"""
        name: "null"
        environment: {{id: "{NAME}"}}
        agent: vtrace
        actor: {{envs_per_group: 2}}
        learner:
          frame_stack: 1
          unroll_length: 4
          batch_size: 4
          idle_timeout_s: 60
          notice_interval_s: 60
          checkpoint: {{every_s: 1000}}
          inference: {{slots: 64, max_batch_envs: 32, max_wait_ms: 1}}
        evaluation: {{at_end: false}}
        logging: {{interval_s: 1000}}
        """,
        overrides,
    )


@contextmanager
def null_learner(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *overrides: str,
    listen: str = "",
    may_build: bool = True,
    train: bool = True,
    may_fail: bool = False,
    in_flight: int = 1,
) -> Iterator[NullLearner]:
    """A started learner; at the end it is stopped, and must not have failed unless it may.

    Args:
        listen: an address; a unix socket by default.
        may_build: the model is built as soon as the first actor comes.
        train: takes unrolls from the queue; else the queue fills up.
        in_flight: batches that are dispatched before the first one is read.
    """
    config, policy = experiment(*overrides), null.NullPolicy(answer, in_flight)
    with open_run_directory(path / "run", config) as run:
        learner = NullLearner(config, run, listen or f"unix:{run.socket}", policy)
        if not may_build:
            learner.may_build.clear()
        if not train:
            monkeypatch.setattr(learner.prefetch, "run", lambda *_: None)
        learner.address = learner.start()
        learner.ended = threading.Event()

        def watch() -> None:
            try:
                learner.summary = learner.run()
            except BaseException as error:
                learner.failure = error
            learner.ended.set()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield learner
        finally:
            policy.gate.set()
            learner.may_build.set()
            learner.stop("the test is over")
            assert learner.ended.wait(DEADLINE_S), "the learner does not end"
        if learner.failure is not None and not may_fail:
            raise learner.failure
