"""Child: a learner in production's threads, with a policy that has no model.

The policy answers with random actions and zero logits at once; unrolls are dropped where the
prefetch thread would take them, so that nothing trains. Keras is imported only with `tables`.
"""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from typing_extensions import override

from bench.child import rss_bytes, sleep_and_until
from seedbed.config import Experiment, load_experiment
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import ArraySpec, EnvironmentSpec, StepInputs


def pong_spec(experiment: Experiment) -> EnvironmentSpec:
    """Return the spec in the Hello of Pong actors."""
    atari = experiment.environment.atari
    frame = ArraySpec((atari.height, atari.width, 1), "uint8")
    return EnvironmentSpec(experiment.environment.id, frame, 18, atari.frame_skip)


class NullPolicy:
    """Answers at once while its gate is open; otherwise every batch waits."""

    in_flight = 1

    def __init__(self, actions: int, most: int) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.messages = self.steps = 0
        self._batches = 0
        self._actions = np.random.default_rng(0).integers(0, actions, (997, most), np.int32)
        self._logits = np.zeros((most, actions), np.float32)

    def dispatch(self, _: Any, rows: Sequence[StepInputs]) -> Any:
        """Answer one batch, as `InferenceStep.dispatch` does."""
        self.gate.wait()
        count = sum(len(row.slots) for row in rows)
        self._batches += 1
        self.messages += len(rows)
        self.steps += count
        action = self._actions[self._batches % len(self._actions), :count]
        behaviour = {"logits": self._logits[:count]}
        outputs = SimpleNamespace(action=action, behaviour=behaviour, padded_rows=count)
        return SimpleNamespace(result=lambda: outputs)


class NullLearner(Learner):
    """Learner whose components are there at once, and empty but for the policy.

    Args:
        path: File of the experiment; the run directory is next to it.
        listen: `unix:PATH`.
        tables: Allocate the device tables of production too.
    """

    def __init__(self, path: str, listen: str, tables: bool = False) -> None:
        keep_large_blocks()  # as the TensorFlow backend does before its import
        experiment = load_experiment(path)
        super().__init__(
            experiment, open_run_directory(Path(path).with_suffix(".run"), experiment), listen
        )
        spec, settings = pong_spec(experiment), experiment.learner
        self._unroll = UnrollSpec(
            observation=spec.observation,
            unroll_length=settings.unroll_length,
            frame_stack=settings.frame_stack,
            state_size=0,
            behaviour={"logits": ArraySpec((spec.actions,), "float32")},
        )
        self._policy = NullPolicy(spec.actions, settings.inference.max_batch_envs)
        self._tables: Any = None
        self._table_bytes = 0
        if tables:
            self._tables, self._table_bytes = make_tables(experiment, spec)
        self.components.fix_spec(spec)
        self.store.publish([], 0)
        built: Any = SimpleNamespace(unroll=self._unroll, inference=[self._policy])
        self.components.set_result(built)
        self.start()

    @override
    def _train(self) -> None:
        """Train nothing."""

    @override
    def _prefetch(self) -> None:
        while not self.threads.stopping.is_set():
            self.queue.get(POLL_S)

    def _check(self) -> None:
        if self.threads.failure is not None:
            raise self.threads.failure

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
            "environments": self.telemetry.sessions.environments,
        }

    def slot_bytes(self) -> dict[str, int]:
        """Return the bytes of a slot in the unroll and in the device tables, as computed."""
        unroll = self._unroll.bytes_per_environment()
        return {"computed_unroll_bytes": unroll, "computed_table_bytes": self._table_bytes}


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
