"""A real learner with a policy that computes nothing, so that no model library is loaded.

Everything else is production's: the server, sessions, batcher, queue, threads, checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.backends.roles import SHARED
from seedbed.config import Experiment, parse_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.training.sources import OnPolicySource
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import ArraySpec, EnvironmentSpec, StepInputs

ACTIONS = 1000
OBSERVATION = ArraySpec((2,), "float32")
NAME = "Null-v0"
DEADLINE_S = 30.0


class NullPolicy:
    """The action is the observation's first number plus one, so that each gets its own answer.

    Attributes:
        in_flight: batches that are dispatched before the first one is read.
        gate: while it is clear, a batch waits at its end.
        entered: set when a batch has begun.
    """

    def __init__(self, in_flight: int = 1) -> None:
        self.in_flight = in_flight
        self.random = np.random.default_rng(0)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def rehearse(self, params: Any, environments: int) -> None:
        pass

    def dispatch(self, params: Any, rows: Sequence[StepInputs]) -> Any:
        self.entered.set()
        seen = np.concatenate([row.observation[:, 0] for row in rows])
        action = ((seen % ACTIONS).astype(np.int32) + 1) % ACTIONS

        def result() -> Any:
            assert self.gate.wait(DEADLINE_S)
            return SimpleNamespace(
                action=action, behaviour={}, padded_rows=len(action), state_before=lambda: None
            )

        return SimpleNamespace(ready=self.gate.is_set, result=result)


# One device that is none.
BACKEND: Any = SimpleNamespace(
    name="numpy",
    devices=lambda: ["none"],
    to_device=lambda arrays: arrays,
    to_acting=lambda params: [params],
    num_devices=lambda: 1,
    split=SHARED,
)


class NullLearner(Learner):
    """A learner whose model is there once `may_build` is set. Training counts, and that is all."""

    policy: NullPolicy
    may_build: threading.Event
    address: str
    ended: threading.Event  # then there is `summary` or `failure`
    summary: dict[str, Any] | None = None
    failure: BaseException | None = None


def experiment(*overrides: str) -> Experiment:
    return parse_experiment(
        f"""
        name: "null"
        environment: {{id: "{NAME}"}}
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
    config, policy, allowed = experiment(*overrides), NullPolicy(in_flight), threading.Event()
    if may_build:
        allowed.set()

    def build(_: Learner, spec: EnvironmentSpec, __: Any) -> LearnerComponents:
        assert allowed.wait(DEADLINE_S)
        unroll = UnrollSpec(spec.observation, config.learner.unroll_length, 1, 0, {})
        trainer = SimpleNamespace(
            layout=list, params=list, state=lambda: {"model/w": np.zeros(3)}, load=lambda _: None
        )
        source = OnPolicySource(trainer, BACKEND, config.learner.batch_size, unroll)
        agent = SimpleNamespace(trains_from_replay=False)
        parts: Any = (BACKEND, agent, trainer, [policy], source)
        return LearnerComponents(spec, unroll, *parts)

    monkeypatch.setattr(NullLearner, "_make_components", build)
    monkeypatch.setattr(NullLearner, "_load_backend", lambda _: BACKEND)
    with open_run_directory(path / "run", config) as run:
        address = listen or f"unix:{run.socket}"
        learner = NullLearner(config, run, address, frozen=True)
        learner.policy, learner.may_build = policy, allowed
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
            allowed.set()
            learner.stop("the test is over")
            assert learner.ended.wait(DEADLINE_S), "the learner does not end"
        if learner.failure is not None and not may_fail:
            raise learner.failure
