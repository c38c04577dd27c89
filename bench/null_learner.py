"""A learner in production's threads, with a policy that has no model; and the child that has one.

Server, sessions, batcher, queue, threads and checkpoints are production's. No model library is
loaded, but with `tables`.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from bench.child import rss_bytes, sleep_and_until
from seedbed.backends.roles import SHARED
from seedbed.config import Experiment, load_experiment
from seedbed.runs.directory import RunDirectory, open_run_directory
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.training.sources import OnPolicySource
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import ArraySpec, EnvironmentSpec, StepInputs

Answer = Callable[[Sequence[StepInputs]], tuple[NDArray[np.int32], dict[str, NDArray[Any]]]]
# A backend without a device.
BACKEND: Any = SimpleNamespace(
    name="numpy",
    devices=lambda: ["none"],
    to_device=lambda arrays: arrays,
    to_acting=lambda params: [params],
    num_devices=lambda: 1,
    split=SHARED,
)


class NullPolicy:
    """Stands in for `InferenceStep`, and computes nothing.

    Args:
        answer: From a batch's rows to its actions and what describes the behaviour.
        in_flight: Batches that are dispatched before the first one is read.

    Attributes:
        gate: While it is clear, a batch waits at its end.
        entered: Set when a batch has begun.
        messages: Requests so far.
        steps: Rows so far.
    """

    def __init__(self, answer: Answer, in_flight: int = 1) -> None:
        self._answer, self.in_flight = answer, in_flight
        self.random = np.random.default_rng(0)  # a checkpoint has its state
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.messages = self.steps = 0

    def rehearse(self, params: Any, environments: int) -> None:
        """Compile nothing."""

    def dispatch(self, _: Any, rows: Sequence[StepInputs]) -> Any:
        """Answer one batch, as `InferenceStep.dispatch` does."""
        self.entered.set()
        action, behaviour = self._answer(rows)
        self.messages += len(rows)
        self.steps += len(action)

        def result() -> Any:
            self.gate.wait()
            return SimpleNamespace(
                action=action,
                behaviour=behaviour,
                padded_rows=len(action),
                state_before=lambda: None,
            )

        return SimpleNamespace(ready=self.gate.is_set, result=result)


class NullLearner(Learner):
    """A learner whose training counts, and that is all.

    Args:
        experiment: The experiment.
        run: The open run directory.
        listen: `host:port` or `unix:PATH`.
        policy: Answers the steps.
        behaviour: What the policy's answers hold besides actions.

    Attributes:
        may_build: While it is clear, there are no components.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        listen: str,
        policy: NullPolicy,
        behaviour: Mapping[str, ArraySpec] | None = None,
    ) -> None:
        super().__init__(experiment, run, listen, frozen=True)
        self.policy, self._behaviour = policy, dict(behaviour or {})
        self.may_build = threading.Event()
        self.may_build.set()

    @override
    def _load_backend(self) -> Any:
        return BACKEND

    @override
    def _make_components(self, spec: EnvironmentSpec, backend: Any) -> LearnerComponents:
        self.may_build.wait()
        settings = self.experiment.learner
        unroll = UnrollSpec(
            spec.observation, settings.unroll_length, settings.frame_stack, 0, self._behaviour
        )
        trainer: Any = SimpleNamespace(
            layout=list, params=list, state=lambda: {"model/w": np.zeros(3)}, load=lambda _: None
        )
        source = OnPolicySource(trainer, backend, settings.batch_size, unroll)
        body = SimpleNamespace(network="none")
        agent: Any = SimpleNamespace(trains_from_replay=False, body=body)
        inference: Any = [self.policy]
        return LearnerComponents(spec, unroll, backend, agent, trainer, inference, source)


def pong_spec(experiment: Experiment) -> EnvironmentSpec:
    """Return the spec in the Hello of Pong actors."""
    atari = experiment.environment.atari
    frame = ArraySpec((atari.height, atari.width, 1), "uint8")
    return EnvironmentSpec(experiment.environment.id, frame, 18, atari.frame_skip)


class MeasuredLearner:
    """Child: a null learner of Pong, with random actions and zero logits.

    Unrolls are dropped where the prefetch thread would take them.

    Args:
        path: File of the experiment; the run directory is next to it.
        listen: `host:port` or `unix:PATH`.
        tables: Allocate the device tables of production too.
    """

    def __init__(self, path: str, listen: str, tables: bool = False) -> None:
        keep_large_blocks()  # as the TensorFlow backend does before its import
        experiment = load_experiment(path)
        spec, most = pong_spec(experiment), experiment.learner.inference.max_batch_envs
        actions = np.random.default_rng(0).integers(0, spec.actions, (997, most), np.int32)
        logits = np.zeros((most, spec.actions), np.float32)

        def answer(rows: Sequence[StepInputs]) -> Any:
            count = sum(len(row.slots) for row in rows)
            turn = self._policy.messages % len(actions)
            return actions[turn, :count], {"logits": logits[:count]}

        self._policy = NullPolicy(answer)
        self._learner = learner = NullLearner(
            experiment,
            open_run_directory(Path(path).with_suffix(".run"), experiment),
            listen,
            self._policy,
            {"logits": ArraySpec((spec.actions,), "float32")},
        )
        self._tables: Any = None
        self._table_bytes = 0
        if tables:
            self._tables, self._table_bytes = make_tables(experiment, spec)
        learner.components.fix_spec(spec)
        learner.prefetch.run = self._drop  # type: ignore[method-assign]
        learner.start()

    def _drop(self, components: LearnerComponents, stopping: threading.Event) -> None:
        while not stopping.is_set():
            self._learner.queue.get(POLL_S)

    def _check(self) -> None:
        if self._learner.threads.failure is not None:
            raise self._learner.threads.failure

    def measure(self, seconds: float, warm_up_s: float) -> dict[str, Any]:
        """Open the gate for a while; return steps, seconds and CPU seconds of a window."""
        policy = self._policy
        policy.gate.set()
        time.sleep(warm_up_s)
        messages, steps = policy.messages, policy.steps
        started, cpu = time.perf_counter(), time.process_time()
        sleep_and_until(seconds, lambda: policy.messages > messages)
        measured = {
            "steps": policy.steps - steps,
            "seconds": time.perf_counter() - started,
            "cpu_s": time.process_time() - cpu,
        }
        policy.gate.clear()
        self._check()
        return measured

    def usage(self) -> dict[str, Any]:
        """Return CPU seconds and messages so far, resident bytes, connected environments."""
        self._check()
        return {
            "cpu_s": time.process_time(),
            "messages": self._policy.messages,
            "rss": rss_bytes(os.getpid()),
            "environments": self._learner.telemetry.sessions.environments,
        }

    def slot_bytes(self) -> dict[str, int]:
        """Return the bytes of a slot in the unroll and in the device tables, as computed."""
        unroll: Any = self._learner.components.result(POLL_S)
        return {
            "computed_unroll_bytes": unroll.unroll.bytes_per_environment(),
            "computed_table_bytes": self._table_bytes,
        }


def make_tables(experiment: Experiment, spec: EnvironmentSpec) -> tuple[Any, int]:
    """Allocate the device tables as production does; return them, and the bytes of a slot in them.

    They belong to an `InferenceStep` that does not run.
    """
    from seedbed import backends
    from seedbed.services.learner.components_factory import build_components

    built = build_components(experiment, spec, backends.use(experiment.learner.backend))
    blank = np.zeros((1, *spec.observation.shape), spec.observation.dtype)
    frame_bytes = np.asarray(built.agent.body.prepare(blank)).nbytes
    context = experiment.learner.frame_stack - 1
    return built, context * frame_bytes + 4 * built.agent.body.state_size
