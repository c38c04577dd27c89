"""Child: an inference batch and a training step of an experiment, each alone."""

import time
from collections.abc import Callable
from itertools import cycle

import numpy as np

from bench.null_learner import pong_spec
from seedbed import backends
from seedbed.config import load_experiment
from seedbed.services.learner.unrolls.batches import BatchBuilder, TrainingBatch
from seedbed.services.learner.unrolls.unroll import UnrollSpec, UnrollWriter
from seedbed.spec import FIRST, StepInputs


class Parts:
    """The real `InferenceStep` and trainer, fed with noise: what they cost is the same."""

    def __init__(self, experiment: str) -> None:
        self._config = load_experiment(experiment)
        from seedbed.services.learner.components_factory import build_components

        spec = pong_spec(self._config)
        learner = self._config.learner
        self._built = build_components(self._config, spec, backends.use(learner.backend))
        self._random = np.random.default_rng(0)
        self._shape = spec.observation.shape
        self._actions = spec.actions
        self._batch = self._make_batch()

    def _rows(self, environments: int, flag: int) -> StepInputs:
        return StepInputs(
            np.arange(environments, dtype=np.int32),
            self._random.integers(0, 256, (environments, *self._shape), np.uint8),
            np.full(environments, flag, np.uint8),
            np.zeros(environments, np.float32),
            np.zeros(environments, np.int32),
        )

    def _make_batch(self) -> TrainingBatch:
        """A batch that came through writer and builder, as in production."""
        environments, unroll = self._config.learner.batch_size, self._built.unroll
        assert isinstance(unroll, UnrollSpec)
        writer = UnrollWriter(unroll, environments)
        done = None
        while done is None:
            row = self._rows(environments, 0)
            done = writer.add_step(row.observation, row.reward, row.flags)
            writer.set_outputs(
                self._random.integers(0, self._actions, environments, np.int32),
                {
                    name: np.zeros((environments, *array.shape), array.dtype)
                    for name, array in unroll.behaviour.items()
                },
                0,
                np.zeros((environments, unroll.state_size), np.float32),
            )
        (batch,) = BatchBuilder(environments).add(done)
        return batch

    def infer(self, environments: int, seconds: float) -> dict[str, float]:
        """Return CPU and wall seconds of a step in batches of so many environments."""
        params, run = self._built.trainer.params(), self._built.inference.run
        rows = [self._rows(environments, flag) for flag in (FIRST, *[0] * 16)]
        for row in rows:  # compiles, and warms up
            run(params, [row])
        again = cycle(rows[1:])
        return _cost(lambda: run(params, [next(again)]), environments, seconds)

    def train(self, seconds: float) -> dict[str, float]:
        """Return CPU and wall seconds of a step in training."""
        self._update()
        return _cost(self._update, self._batch.steps, seconds)

    def _update(self) -> None:
        backend = self._built.backend
        scalars = self._built.trainer.step(backend.to_device(self._batch.arrays))
        for value in scalars.values():  # waits for the end of the step
            np.asarray(value)


def _cost(action: Callable[[], object], steps: int, seconds: float) -> dict[str, float]:
    """Repeat an action for so many seconds; return the CPU and wall seconds of a step.

    Args:
        action: What is measured.
        steps: Environment steps of an action.
        seconds: Shortest time.
    """
    done, cpu, started = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - started < seconds:
        action()
        done += steps
    return {
        "cpu_s": (time.process_time() - cpu) / done,
        "wall_s": (time.perf_counter() - started) / done,
    }
