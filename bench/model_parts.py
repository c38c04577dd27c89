"""Child: an inference batch and a training step of an experiment, each alone."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

import numpy as np

from bench.null_learner import pong_spec
from seedbed import backends
from seedbed.backends.protocol import Backend
from seedbed.config import Experiment, load_experiment
from seedbed.launch.operation_threads import operation_threads
from seedbed.services.learner.unrolls.batches import BatchBuilder, TrainingBatch
from seedbed.services.learner.unrolls.unroll import UnrollSpec, UnrollWriter
from seedbed.spec import FIRST, StepInputs


def used_backend(experiment: Experiment, actors_here: bool = False) -> Backend:
    """Fix this process's backend as the experiment's learner does.

    Args:
        experiment: its section `learner` is read.
        actors_here: The learner's actors run on this machine.
    """
    learner = experiment.learner
    return backends.use(
        learner.backend,
        device=learner.device,
        precision=learner.precision,
        operation_threads=operation_threads(experiment, actors_here),
    )


class Parts:
    """The real `InferenceStep` and trainer, fed with noise: what they cost is the same.

    Args:
        experiment: File of the experiment.
        actors_here: As of `used_backend`.
    """

    def __init__(self, experiment: str, actors_here: bool = False) -> None:
        self._config = load_experiment(experiment)
        backend = used_backend(self._config, actors_here)  # before Keras is imported
        from seedbed.services.learner.components_factory import build_components

        spec = pong_spec(self._config)
        self._built = build_components(self._config, spec, backend)
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
        params, run = self._built.trainer.params(), self._built.inference[0].run
        rows = [self._rows(environments, flag) for flag in (FIRST, *[0] * 16)]
        for row in rows:  # compiles, and warms up
            run(params, [row])
        again = cycle(rows[1:])
        return _cost(lambda: run(params, [next(again)]), environments, seconds)

    def train(self, seconds: float) -> dict[str, float]:
        """Return CPU and wall seconds of a step in training."""
        self._update()
        return _cost(self._update, self._batch.steps, seconds)

    def latency(self, environments: int, seconds: float, busy: bool) -> dict[str, float]:
        """Return the milliseconds of a batch, median and 99th percentile, and rows a second.

        Args:
            environments: Of a batch.
            seconds: Of the measurement.
            busy: Train meanwhile, as production does: in a thread of this process.
        """
        params, run = self._built.trainer.params(), self._built.inference[0].run
        rows = [self._rows(environments, flag) for flag in (FIRST, *[0] * 16)]
        for row in rows:
            run(params, [row])
        took: list[float] = []
        again = cycle(rows[1:])
        with self._training(busy) as updates:
            before, begin = updates(), time.perf_counter()
            # On a machine that is too busy, until there is something to count.
            while (
                (now := time.perf_counter()) - begin < seconds
                or len(took) < 10
                or (busy and updates() == before)
            ):
                run(params, [next(again)])
                took.append(time.perf_counter() - now)
            passed, made = time.perf_counter() - begin, updates() - before
        return {
            "p50_ms": 1e3 * float(np.median(took)),
            "p99_ms": 1e3 * float(np.quantile(took, 0.99)),
            "rows_per_s": environments * len(took) / sum(took),
            "batches": len(took),
            "updates_per_s": made / passed,
        }

    @contextmanager
    def _training(self, busy: bool) -> Iterator[Callable[[], int]]:
        """Train in a thread meanwhile; yield a count of the updates."""
        done, stop = [0], threading.Event()

        def train() -> None:
            while not stop.is_set():
                self._update()
                done[0] += 1

        thread = threading.Thread(target=train, daemon=True)
        if busy:
            self._update()  # compiled
            thread.start()
        try:
            yield lambda: done[0]
        finally:
            stop.set()
            if busy:
                thread.join()

    def update_ms(self, seconds: float, runs: int) -> list[float]:
        """Return the milliseconds of an update, several times."""
        self._update()
        steps = self._batch.steps
        return [1e3 * steps * _cost(self._update, steps, seconds)["wall_s"] for _ in range(runs)]

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
