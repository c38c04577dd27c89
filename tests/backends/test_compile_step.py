"""A step that is compiled before its first batch: the first batch compiles nothing again."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.spec import ArraySpec

pytestmark = pytest.mark.backends


def make(backend: Backend, traced: list[Any]) -> Trainer:
    model = keras.Sequential([keras.layers.Dense(2, name="dense")], name="model")
    model.build((None, 3))
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(np.random.default_rng(i).normal(size=variable.shape))

    def loss(params: Any, target: Any, batch: Any) -> Any:
        traced.append(tuple(batch["x"].shape))
        y, _ = model.stateless_call(params, [], batch["x"])
        return ops.mean(ops.square(y) * batch["weight"]), {}

    optimizer = keras.optimizers.Adam(0.1, name="adam")
    return backend.trainer(model, optimizer, loss, 0.3, target_update_period=2)


def test_the_first_batch_compiles_nothing_again(backend: Backend) -> None:
    traced: list[Any] = []
    ahead, plain = make(backend, traced), make(backend, [])
    before = ahead.state()
    ahead.compile_step({"x": ArraySpec((4, 3), "float32"), "weight": ArraySpec((4, 1), "float32")})
    assert set(traced) == {(4, 3)}
    for name, array in ahead.state().items():
        np.testing.assert_array_equal(array, before[name], err_msg="nothing is computed")
    count = len(traced)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        arrays = {"x": rng.normal(size=(4, 3)), "weight": rng.normal(size=(4, 1))}
        batch = {name: array.astype(np.float32) for name, array in arrays.items()}
        for trainer in (ahead, plain):
            trainer.fetch(trainer.step(backend.to_device(batch)))
    assert len(traced) == count
    other = plain.state()
    for name, array in ahead.state().items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
