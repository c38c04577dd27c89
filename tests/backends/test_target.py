"""The target network: it follows every so many updates, and is there again after a restart."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.runtime.exit_codes import SeedbedError

pytestmark = pytest.mark.backends

BATCH = {"x": np.ones(3, np.float32)}


def make(backend: Backend, every: int, value: float = 0.0) -> Trainer:
    """One parameter that plain gradient descent takes to 1, 2, 3, ..."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="dense")], name="model")
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, value, np.float32))

    def loss(params: list[Any], target: list[Any], batch: Any) -> tuple[Any, dict[str, Any]]:
        total = -sum(ops.sum(p) for p in params) + 0.0 * ops.sum(batch["x"])
        return total, {
            "target": ops.max(target[0]) if target else ops.zeros(()),
            "own": ops.max(params[0]),
        }

    return backend.trainer(model, keras.optimizers.SGD(1.0), loss, 0, target_update_period=every)


def updates(backend: Backend, trainer: Trainer, n: int) -> list[tuple[float, float]]:
    """The parameter and the target's, as each of the next n updates sees them."""
    seen = []
    for _ in range(n):
        scalars = trainer.step(backend.to_device(BATCH))
        seen.append((float(scalars["own"]), float(scalars["target"])))
    return seen


@pytest.mark.parametrize("every", [1, 3])
def test_it_follows_every_so_many_updates(backend: Backend, every: int) -> None:
    wanted = [(t, t - t % every) for t in range(8)]
    assert updates(backend, make(backend, every), 8) == wanted


def test_it_goes_on_after_a_restart(backend: Backend) -> None:
    """In the midst of an interval, with its own parameters and its age."""
    whole = updates(backend, make(backend, 3), 9)
    trainer = make(backend, 3)
    before = updates(backend, trainer, 5)
    state = trainer.state()
    assert {name for name in state if name.startswith("target/")} == {
        name.replace("model/", "target/") for name in state if name.startswith("model/")
    }
    assert int(state["target_age"]) == 2
    after = make(backend, 3, value=7.0)
    after.load(state)
    assert before + updates(backend, after, 4) == whole
    # What was written down does not change with the trainer that wrote it.
    updates(backend, trainer, 4)
    assert {float(array.max()) for name, array in state.items() if name.startswith("target/")} == {
        3.0
    }


def test_a_warm_start_begins_with_the_parameters(backend: Backend) -> None:
    trainer = make(backend, 3)
    updates(backend, trainer, 5)
    after = make(backend, 3)
    after.load(trainer.state(), optimizer=False)
    assert updates(backend, after, 4) == [(5, 5), (6, 5), (7, 5), (8, 8)]


def test_a_state_without_one_begins_with_the_parameters(backend: Backend) -> None:
    plain = make(backend, 0)
    updates(backend, plain, 2)
    state = plain.state()
    assert not [name for name in state if name.startswith("target")]
    after = make(backend, 3)
    after.load(state)
    assert updates(backend, after, 2) == [(2, 2), (3, 2)]


def test_another_networks_target_is_refused(backend: Backend) -> None:
    trainer = make(backend, 3)
    state = trainer.state()
    name = next(name for name in state if name.startswith("target/"))
    with pytest.raises(SeedbedError, match=name):
        make(backend, 3).load({**state, name: np.zeros((9, 9), np.float32)})
