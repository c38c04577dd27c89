"""Running statistics that an update changes beside the optimizer, on both backends."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.arithmetic import updated_statistics
from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.networks.statistics import ObservationNormalizer, RunningStatistics
from seedbed.spec import ArraySpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
D = 3


class Scorer(keras.Model):
    """A score of normalized vectors, and statistics behind what it learns."""

    def __init__(self, updates: int) -> None:
        super().__init__(name="model")
        self.normalizer = ObservationNormalizer(ArraySpec((D,), "float32"), 1)
        self.normalizer.updates = updates
        self.dense = keras.layers.Dense(1, name="dense")
        self.behind = RunningStatistics((), "behind", prior=1)

    def call(self, x: Any) -> Any:
        return self.dense(self.normalizer(x))


def make(backend: Backend, updates: int = 1000) -> tuple[Trainer, Scorer]:
    model = Scorer(updates)
    model(keras.KerasTensor((1, D), "float32"))

    def loss(params: Any, _: Any, batch: Any) -> Any:
        y, _ = model.stateless_call(params, [], batch["x"])
        seen = model.normalizer.of(model, params)
        counted = model.normalizer.loss(seen, batch["x"], batch["weight"])
        first = batch["x"][:, 0]
        counted += model.behind.loss(model.behind.of(model, params), first, batch["weight"])
        return ops.mean(ops.square(y - 1.0)) + counted, {}

    optimizer = keras.optimizers.Adam(0.1, name="adam")
    return backend.trainer(model, optimizer, loss, 0.5), model


def batches(count: int, rows: int = 40) -> list[dict[str, Array]]:
    """Numbers far from 0, beside deviations of 1 and 100; some rows count for nothing."""
    rng = np.random.default_rng(3)
    scale, offset = np.array([1.0, 100.0, 0.01]), np.array([300.0, -20.0, 0.0])
    return [
        {
            "x": (rng.normal(size=(rows, D)) * scale + offset + i).astype(np.float32),
            "weight": (np.arange(rows) < rows - i % 3).astype(np.float32),
        }
        for i in range(count)
    ]


def expected(given: list[dict[str, Array]], prior: int = 0) -> tuple[Array, Array]:
    """Mean and variance of a mixture in which each batch has the same weight."""
    means = [np.zeros(D)] * prior
    squares = [np.ones(D)] * prior
    for batch in given:
        x = batch["x"][batch["weight"] > 0].astype(np.float64)
        means.append(x.mean(0))
        squares.append((x**2).mean(0))
    mean = np.mean(means, 0)
    return mean, np.mean(squares, 0) - mean**2


def statistics(trainer: Trainer, layer: str) -> Array:
    (array,) = (a for name, a in trainer.state().items() if name == f"model/{layer}/statistics")
    return array


def test_they_are_the_mean_and_variance_of_all_batches(backend: Backend) -> None:
    trainer, _ = make(backend)
    given = batches(30)
    for batch in given:
        outputs = trainer.step(backend.to_device(batch))
        assert float(np.asarray(outputs["gradient_norm"])) < 1e3, "they are not what is learned"
    mean, variance = expected(given)
    found = statistics(trainer, "normalizer")
    np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found[1], variance, rtol=1e-2)
    np.testing.assert_array_equal(found[2], 30)
    mean, variance = expected(given, prior=1)
    np.testing.assert_allclose(statistics(trainer, "behind")[:2], [mean[0], variance[0]], rtol=1e-4)
    assert statistics(trainer, "behind")[2] == 31


def test_they_stay_once_enough_is_counted_and_through_a_skipped_update(backend: Backend) -> None:
    trainer, _ = make(backend, updates=4)
    given = batches(8)
    for number, batch in enumerate(given):
        if number == 2:
            bad = {**batch, "x": np.full_like(batch["x"], np.nan)}
            before = statistics(trainer, "normalizer")
            trainer.step(backend.to_device(bad))
            np.testing.assert_array_equal(statistics(trainer, "normalizer"), before)
        trainer.step(backend.to_device(batch))
    mean, variance = expected(given[:4])
    found = statistics(trainer, "normalizer")
    np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found[1], variance, rtol=1e-2)


def test_they_act_as_they_are_published_and_loaded(backend: Backend) -> None:
    trainer, model = make(backend)
    given = batches(5)
    for batch in given:
        trainer.step(backend.to_device(batch))
    other, _ = make(backend)
    other.load(trainer.state())
    mean, variance = expected(given)
    for params in (trainer.params(), other.params()):
        x = given[0]["x"]
        kernel, bias = (np.asarray(params[i]) for i in (1, 2))
        clipped = np.clip((x - mean) / np.sqrt(variance + 1e-5), -5, 5)
        y, _ = model.stateless_call(params, [], ops.convert_to_tensor(x))
        np.testing.assert_allclose(np.asarray(y), clipped @ kernel + bias, rtol=1e-2, atol=1e-3)


def test_gradients_of_learners_add_up_to_those_of_all_that_they_saw(backend: Backend) -> None:
    """All-reduce averages gradients; both halves are equal parts of one batch."""
    (batch,) = batches(1)
    trainer, _ = make(backend)
    halves = [{name: array[part] for name, array in batch.items()} for part in
              (slice(0, 20), slice(20, 40))]  # fmt: skip
    parts = [[np.asarray(g) for g in trainer.gradients(backend.to_device(h))[1]] for h in halves]
    trainer.apply([(one + other) / 2 for one, other in zip(*parts, strict=True)])
    found = statistics(trainer, "normalizer")
    mean, variance = expected([batch])
    np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-4)
    # 1 beside 300 squared, in float32.
    np.testing.assert_allclose(found[1], variance, rtol=2e-2)


def test_a_batch_of_nothing_is_not_counted(backend: Backend) -> None:
    (batch,) = batches(1)
    trainer, _ = make(backend)
    trainer.step(backend.to_device({**batch, "weight": np.zeros(40, np.float32)}))
    np.testing.assert_array_equal(
        statistics(trainer, "normalizer"), np.array([[0.0], [1], [0]]) + np.zeros(D)
    )


def test_one_update_by_hand() -> None:
    """Of 3 batches with mean 2 and variance 5, and one of the numbers 4 and 8."""
    mean_square_distance = ((4 - 2) ** 2 + (8 - 2) ** 2) / 2
    gradient = np.array([-(6 - 2), 5 - mean_square_distance, -1], np.float32)
    found = updated_statistics(np.array([2, 5, 3], np.float32), gradient)
    mean = (3 * 2 + 6) / 4
    squares = (3 * (5 + 2**2) + (4**2 + 8**2) / 2) / 4
    np.testing.assert_allclose(np.asarray(found), [mean, squares - mean**2, 4], rtol=1e-6)
