"""All-reduce: the sum around a ring, and n learners of b that equal one of n·b."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.gossip.allreduce import AllReduceExchange, ring_sum
from seedbed.gossip.exchange import LocalLearner, ShuttingDown
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.buffers import SegmentBuffer
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipStats
from seedbed.v1.gossip_pb2 import Member
from tests.support.gossip_learners import experiment
from tests.support.waiting import wait_for

pytestmark = pytest.mark.backends


@pytest.mark.parametrize(("count", "size"), [(2, 5), (3, 7), (4, 8), (5, 3)])
def test_the_ring_sums_and_all_get_the_same_bits(count: int, size: int) -> None:
    draw = np.random.default_rng(count)
    own = draw.normal(size=(count, size)).astype(np.float32)
    inboxes = [SegmentBuffer(rank, count, size) for rank in range(count)]

    def take(rank: int) -> NDArray[np.float32]:
        def receive(step: int) -> bytes:
            data = inboxes[rank].take(0, step, 20.0)
            assert data is not None
            return data

        after = inboxes[(rank + 1) % count]
        return ring_sum(
            own[rank], rank, count, lambda step, data: after.put(0, step, data), receive
        )

    with ThreadPoolExecutor(count) as pool:
        sums = list(pool.map(take, range(count)))
    np.testing.assert_allclose(sums[0], own.sum(axis=0), rtol=1e-5, atol=1e-6)
    for other in sums[1:]:
        assert other.tobytes() == sums[0].tobytes()


def make_trainer(backend: Backend) -> Trainer:
    """A regression with a mask: batches of rows [B, 3], targets and weights [B]."""
    keras.utils.set_random_seed(1) if backend.name == "tensorflow" else None
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, "tanh", name="one"),
            keras.layers.Dense(1, name="two"),
        ],
        name="model",
    )
    draw = np.random.default_rng(4)
    for variable in model.trainable_variables:
        variable.assign(draw.normal(size=variable.shape).astype(np.float32))

    def loss(params: list[Any], _: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        out, _ = model.stateless_call(params, [], batch["x"])
        error = ops.square(ops.squeeze(out, -1) - batch["y"]) * batch["mask"]
        total = ops.sum(error) / ops.maximum(ops.sum(batch["mask"]), 1.0)
        return total, {"unmasked": ops.mean(batch["mask"])}

    return backend.trainer(model, keras.optimizers.RMSprop(0.01, epsilon=1e-5), loss, 0.5)


def rows(n: int, seed: int) -> dict[str, NDArray[np.float32]]:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 3)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5], np.float32)).astype(np.float32)
    return {"x": x, "y": y, "mask": (draw.random(n) < 0.7).astype(np.float32)}


class Learners:
    """n learners of all-reduce in threads of this process."""

    def __init__(
        self,
        folder: Path,
        backend: Backend,
        count: int,
        updates: Any = None,
        deadline_s: float = 60.0,
    ) -> None:
        self.config = experiment(folder, count, topology="allreduce", deadline_s=deadline_s)
        self.backend = backend
        self.trainers = [make_trainer(backend) for _ in range(count)]
        self.counters = [Counters(updates=(updates or [0] * count)[r]) for r in range(count)]
        self.threads = [Threads() for _ in range(count)]
        self.made = [self._make(rank) for rank in range(count)]
        self.pool = ThreadPoolExecutor(count)

    def _make(self, rank: int) -> AllReduceExchange:
        settings, trainer = self.config.gossip, self.trainers[rank]
        names, shapes = zip(*trainer.layout(), strict=True)
        layout = ParameterLayout(names, shapes)
        membership = Membership(rank, settings.replicas, settings.deadline_s)
        wanted: list[Future[Any]] = []

        def ask() -> Future[Any]:
            wanted.append(Future())
            return wanted[-1]

        def serve() -> None:
            while wanted:
                wanted.pop().set_result(trainer.state())

        counters = self.counters[rank]
        threads = self.threads[rank]
        transport = GossipTransport(
            self.config,
            membership,
            layout,
            threads,
            PLAIN,
            lambda: Member(iteration=counters.updates, updates=counters.updates),
            ask,
        )
        learner = LocalLearner(trainer, layout, counters, GossipStats(), threads, serve)
        return AllReduceExchange(settings, learner, transport)

    def start(self) -> None:
        list(self.pool.map(lambda made: made.start(), self.made))

    def step(self, batches: list[Any]) -> list[dict[str, Any]]:
        def one(rank: int) -> dict[str, Any]:
            outputs = self.made[rank].step(self.backend.to_device(batches[rank]))
            self.counters[rank].updates += 1
            return outputs

        return list(self.pool.map(one, range(len(self.made))))

    def close(self) -> None:
        for threads, made in zip(self.threads, self.made, strict=True):
            threads.stopping.set()
            made.close()
        for threads in self.threads:
            assert not threads.join(20)
        self.pool.shutdown()


def state_of(trainer: Trainer) -> dict[str, NDArray[Any]]:
    return {name: np.array(array) for name, array in trainer.state().items()}


@pytest.mark.slow_on_jax
def test_n_learners_of_b_equal_one_of_n_b(backend: Backend, tmp_path: Path) -> None:
    """Assran et al. 2019, footnote 2: parameters and optimizer's state, after several updates, with
    rows that are masked in different numbers.
    """
    count, b = 3, 6
    learners, alone = Learners(tmp_path, backend, count), make_trainer(backend)
    try:
        learners.start()
        for update in range(6):
            batch = rows(count * b, seed=update)
            if update == 3:
                batch["mask"][:b] = 0  # all of learner 0's
            parts = [{k: v[r * b : (r + 1) * b] for k, v in batch.items()} for r in range(count)]
            outputs = learners.step(parts)
            one = alone.step(backend.to_device(batch))
            norms = [float(np.asarray(o["gradient_norm"])) for o in outputs]
            assert norms == pytest.approx(
                [float(np.asarray(one["gradient_norm"]))] * count, rel=1e-4
            )
        wanted = state_of(alone)
        for trainer in learners.trainers:
            found = state_of(trainer)
            assert found.keys() == wanted.keys()
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
        first = state_of(learners.trainers[0])
        for trainer in learners.trainers[1:]:
            for name, array in state_of(trainer).items():
                assert array.tobytes() == first[name].tobytes(), f"{name} is the same, bit by bit"
    finally:
        learners.close()


@pytest.mark.slow
def test_a_learner_behind_takes_the_state_of_the_newest(backend: Backend, tmp_path: Path) -> None:
    """Optimizer's state too: learners that resume from checkpoints of different updates."""
    learners = Learners(tmp_path, backend, 3, updates=[2, 5, 4])
    try:
        for trainer, steps in zip(learners.trainers, [2, 5, 4], strict=True):
            for update in range(steps):
                trainer.step(backend.to_device(rows(4, seed=update)))
        wanted = state_of(learners.trainers[1])
        learners.start()
        assert [counters.updates for counters in learners.counters] == [5, 5, 5]
        for trainer in learners.trainers:
            for name, array in state_of(trainer).items():
                np.testing.assert_array_equal(array, wanted[name], err_msg=name)
        learners.step([rows(4, seed=r) for r in range(3)])
    finally:
        learners.close()


@pytest.mark.slow
def test_a_learner_that_is_gone_is_named_after_the_deadline(
    backend: Backend, tmp_path: Path
) -> None:
    learners = Learners(tmp_path, backend, 2, deadline_s=5.0)
    try:
        learners.start()
        with pytest.raises(SeedbedError) as lost:
            learners.made[1].step(backend.to_device(rows(4, seed=0)))  # learner 0 makes none
        assert lost.value.code is ExitCode.PEERS_UNREACHABLE
        assert "no gradients of learner 0 for update 1" in str(lost.value)
        assert "gossip.deadline_s is 5" in str(lost.value)
    finally:
        learners.close()


def test_a_waiting_learner_stops(backend: Backend, tmp_path: Path) -> None:
    learners = Learners(tmp_path, backend, 2)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(ShuttingDown):
            learners.made[1].step(backend.to_device(rows(4, seed=0)))
        ended.set()

    try:
        learners.start()
        thread = threading.Thread(target=wait)
        thread.start()
        wait_for(lambda: learners.made[1].stats.waiting, "it waits")
        learners.threads[1].stopping.set()
        assert ended.wait(20)
        thread.join()
    finally:
        learners.close()


@pytest.mark.parametrize("weights", [(0.5, 0.2, 0.3), (1 / 3, 1 / 3, 1 / 3)])
def test_mixing_is_compiled_and_right(
    backend: Backend, weights: tuple[float, float, float]
) -> None:
    """w_i x_i + Σ_j w_j m_j, against NumPy; the optimizer's state and the order of the parameters
    stay.
    """
    trainer = make_trainer(backend)
    trainer.step(backend.to_device(rows(4, seed=0)))
    names, shapes = zip(*trainer.layout(), strict=True)
    layout = ParameterLayout(names, shapes)
    before = state_of(trainer)
    held = trainer.params()
    own = layout.flatten([np.asarray(p) for p in held])
    draw = np.random.default_rng(0)
    messages = [draw.normal(size=layout.size).astype(np.float32) for _ in range(2)]
    mine, first, second = weights
    trainer.mix(mine, [(first, messages[0]), (second, messages[1])])
    found = layout.flatten([np.asarray(p) for p in trainer.params()])
    np.testing.assert_allclose(
        found, mine * own + first * messages[0] + second * messages[1], rtol=1e-5, atol=1e-6
    )
    after = state_of(trainer)
    for name, array in before.items():
        if not name.startswith("model/"):
            np.testing.assert_array_equal(after[name], array, err_msg=name)
    still = layout.flatten([np.asarray(p) for p in held])
    np.testing.assert_array_equal(still, own, err_msg="what was published never changes")
    mixed = trainer.params()
    for seed in (1, 2):
        trainer.step(backend.to_device(rows(4, seed=seed)))
    still = layout.flatten([np.asarray(p) for p in mixed])
    np.testing.assert_array_equal(still, found, err_msg="nor what was mixed")
    trainer.set_params(layout.split(messages[0]))
    changed = state_of(trainer)
    for name, shape, part in zip(names, shapes, layout.split(messages[0]), strict=True):
        np.testing.assert_array_equal(changed[f"model/{name}"], part.reshape(shape))


def test_two_halves_are_a_step(backend: Backend) -> None:
    whole, halves = make_trainer(backend), make_trainer(backend)
    for update in range(4):
        batch = backend.to_device(rows(5, seed=update))
        one = whole.step(batch)
        outputs, gradients = halves.gradients(batch)
        norm = halves.apply(gradients)
        assert float(norm) == pytest.approx(float(one["gradient_norm"]), rel=1e-5)
        assert float(outputs["loss"]) == pytest.approx(float(one["loss"]), rel=1e-5)
    wanted = state_of(whole)
    for name, array in state_of(halves).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("bad", [np.nan, 3e38])
def test_one_learners_bad_batch_is_skipped_by_all(
    backend: Backend, tmp_path: Path, bad: float
) -> None:
    """All decide alike, by the sum; nothing of theirs changes, and the next update is as usual."""
    count, good = 2, [rows(6, seed=seed) for seed in range(4)]
    learners, alone = Learners(tmp_path, backend, count), make_trainer(backend)

    def parts(batch: dict[str, NDArray[np.float32]]) -> list[dict[str, NDArray[np.float32]]]:
        return [{name: array[r * 3 : r * 3 + 3] for name, array in batch.items()} for r in (0, 1)]

    try:
        learners.start()
        for update, batch in enumerate(good):
            if update in (1, 2):
                before = [state_of(trainer) for trainer in learners.trainers]
                sick = parts(rows(6, seed=9))
                sick[1]["y"][:] = bad
                sick[1]["mask"][:] = 1
                outputs = learners.step(sick)
                for counters in learners.counters:
                    counters.updates -= 1  # a skipped update is not counted
                assert np.isfinite(float(np.asarray(outputs[0]["loss"]))), "its own batch is good"
                for rank, output in enumerate(outputs):
                    assert not np.isfinite(float(np.asarray(output["gradient_norm"])))
                    for name, array in state_of(learners.trainers[rank]).items():
                        assert array.tobytes() == before[rank][name].tobytes(), name
            learners.step(parts(batch))
            alone.step(backend.to_device(batch))
        first, second = (state_of(trainer) for trainer in learners.trainers)
        for name, array in state_of(alone).items():
            assert first[name].tobytes() == second[name].tobytes(), name
            np.testing.assert_allclose(first[name], array, rtol=1e-4, atol=1e-6, err_msg=name)
    finally:
        learners.close()
