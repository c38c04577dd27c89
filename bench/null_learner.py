"""Child: the learner's end of the wire as in production, with a policy that has no model.

Servicer, sessions, batcher, unroll writer and inference thread are the real ones, in the same
threads. The policy answers with random actions and zero logits at once; unrolls are dropped where
the prefetch thread would take them. Keras is imported only with `--tables`.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.child import rss_bytes, serve, sleep_and_until
from seedbed.config import Experiment, load_experiment
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.threads import POLL_S, Threads
from seedbed.services.learner.components import ComponentsFuture
from seedbed.services.learner.inference.thread import InferenceThread
from seedbed.services.learner.parameter_store import ParameterStore
from seedbed.services.learner.sessions.batcher import Batcher
from seedbed.services.learner.sessions.server import InferenceServer
from seedbed.services.learner.sessions.servicer import InferenceServicer
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import ArraySpec, EnvironmentSpec, StepInputs
from seedbed.telemetry import Counters, Telemetry

JOIN_S = 60.0


def pong_spec(experiment: Experiment) -> EnvironmentSpec:
    """Return the spec in the Hello of Pong actors."""
    atari = experiment.environment.atari
    frame = ArraySpec((atari.height, atari.width, 1), "uint8")
    return EnvironmentSpec(experiment.environment.id, frame, 18, atari.frame_skip)


@dataclass
class NullAnswer:
    """As `InferenceOutputs`."""

    action: NDArray[np.int32]
    behaviour: dict[str, NDArray[Any]]
    padded_rows: int


class NullPolicy:
    """Answers at once while its gate is open; otherwise every batch waits."""

    def __init__(self, actions: int, most: int) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.messages = self.steps = self.batches = 0
        self._actions = np.random.default_rng(0).integers(0, actions, (997, most), np.int32)
        self._logits = np.zeros((most, actions), np.float32)

    def run(self, _: Any, rows: Sequence[StepInputs]) -> NullAnswer:
        """One batch."""
        self.gate.wait()
        count = sum(len(row.slots) for row in rows)
        self.batches += 1
        self.messages += len(rows)
        self.steps += count
        action = self._actions[self.batches % len(self._actions), :count]
        return NullAnswer(action, {"logits": self._logits[:count]}, count)


class NullLearner:
    """What `Learner` puts together, but for model and training."""

    def __init__(self, experiment: Experiment, listen: str) -> None:
        self._experiment, self._listen = experiment, listen
        settings = experiment.learner
        self.spec = pong_spec(experiment)
        self.unroll = UnrollSpec(
            observation=self.spec.observation,
            unroll_length=settings.unroll_length,
            frame_stack=settings.frame_stack,
            state_size=0,
            behaviour={"logits": ArraySpec((self.spec.actions,), "float32")},
        )
        self.telemetry = Telemetry(experiment, None, Counters(), out=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        self._queue = UnrollQueue(settings.queue_batches * settings.batch_size)
        inference = settings.inference
        self._batcher = Batcher(
            inference.batch_envs,
            inference.max_batch_envs,
            inference.max_wait_ms / 1000,
        )
        self._model = ComponentsFuture(self.spec)
        built: Any = self
        self._model.set_result(built)  # the servicer reads nothing but `unroll`
        store = ParameterStore()
        store.publish([], 0)
        self._servicer = InferenceServicer(
            experiment,
            self._batcher,
            self._queue,
            self.telemetry,
            self._model,
            lambda: "null",
            SlotAllocator(inference.slots),
        )
        self._inference = InferenceThread(
            self._batcher, store, self.telemetry, self._servicer.send_actions
        )
        self.policy = NullPolicy(self.spec.actions, inference.max_batch_envs)
        self._threads = Threads()
        self._wire = InferenceServer(self._servicer, self._listen, self._threads)

    def start(self) -> None:
        """Listen."""
        self._wire.start()
        policy: Any = self.policy
        self._threads.start(
            "inference", lambda: self._inference.run(policy, self._threads.stopping)
        )
        self._threads.start("prefetch", self._drop)
        self._check()

    def _drop(self) -> None:
        while not self._threads.stopping.is_set():
            self._queue.get(POLL_S)

    def _check(self) -> None:
        if self._threads.failure is not None:
            raise self._threads.failure

    def measure(self, seconds: float, warm_up_s: float) -> dict[str, Any]:
        """Open the gate for a while; messages, steps, batches, seconds, CPU seconds of a window."""
        policy = self.policy
        policy.gate.set()
        time.sleep(warm_up_s)
        before = (policy.messages, policy.steps, policy.batches)
        started, cpu = time.perf_counter(), time.process_time()
        sleep_and_until(seconds, lambda: policy.messages > before[0])
        after = (policy.messages, policy.steps, policy.batches)
        ended, cpu_s = time.perf_counter(), time.process_time() - cpu
        policy.gate.clear()
        self._check()
        messages, steps, batches = (b - a for a, b in zip(before, after, strict=True))
        return {
            "messages": messages,
            "steps": steps,
            "batches": batches,
            "seconds": ended - started,
            "cpu_s": cpu_s,
        }

    def usage(self) -> dict[str, Any]:
        """CPU seconds and messages so far, resident bytes, environments that are connected."""
        self._check()
        return {
            "cpu_s": time.process_time(),
            "messages": self.policy.messages,
            "rss": rss_bytes(os.getpid()),
            "environments": self.telemetry.sessions.environments,
        }

    def stop(self) -> None:
        """End the threads."""
        self.policy.gate.set()
        self._threads.stopping.set()
        self._wire.close()
        self._batcher.close()
        self._threads.join(JOIN_S)


def make_tables(experiment: Experiment, spec: EnvironmentSpec) -> tuple[Any, int]:
    """The device tables as production allocates them, and the bytes of a slot in them.

    They belong to an `InferenceStep` that does not run.
    """
    from seedbed import backends
    from seedbed.services.learner.components_factory import build_components

    built = build_components(experiment, spec, backends.use(experiment.learner.backend))
    blank = np.zeros((1, *spec.observation.shape), spec.observation.dtype)
    frame_bytes = np.asarray(built.agent.body.prepare(blank)).nbytes
    context = experiment.learner.frame_stack - 1
    return built, context * frame_bytes + 4 * built.agent.body.state_size


def main() -> None:
    """Serve `measure` and `usage`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("experiment")
    parser.add_argument("listen")
    parser.add_argument("--tables", action="store_true", help="allocate the device tables too")
    args = parser.parse_args()
    experiment = load_experiment(args.experiment)
    keep_large_blocks()  # as the TensorFlow backend does before its import
    learner = NullLearner(experiment, args.listen)
    tables, table_bytes = make_tables(experiment, learner.spec) if args.tables else (None, 0)
    learner.start()
    try:
        serve(
            {"measure": learner.measure, "usage": learner.usage},
            unroll_bytes=learner.unroll.bytes_per_environment(),
            table_bytes=table_bytes,
        )
    finally:
        learner.stop()
        del tables


if __name__ == "__main__":
    main()
