"""An update whose loss or gradient is not finite changes nothing, on both backends."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer

pytestmark = pytest.mark.backends

HUGE = np.float32(3e38)
# Loss and gradients NaN; both infinite; the loss alone; the gradients alone.
BAD = [{"x": np.nan}, {"y": HUGE}, {"add": np.inf}, {"scale": np.float32(1e30)}]


def make(backend: Backend, optimizer: str = "adam", max_norm: float = 0.3) -> Trainer:
    """Least squares, whose learning rate falls with each update; a target every 3 updates."""
    model = keras.Sequential([keras.layers.Dense(2, name="dense")], name="model")
    model.build((None, 3))
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(np.random.default_rng(i).normal(size=variable.shape))

    def loss(params: Any, target: Any, batch: Any) -> Any:
        y, _ = model.stateless_call(params, [], batch["x"])
        error = ops.mean(ops.square(y - batch["y"])) + batch["add"]
        # Finite and 0, with a gradient whose square overflows.
        nothing = ops.sum(params[1] - ops.stop_gradient(params[1])) * batch["scale"]
        return error + nothing, {"target": ops.max(target[0])}

    rate = keras.optimizers.schedules.PolynomialDecay(0.1, 20)
    chosen = {
        "adam": keras.optimizers.Adam(rate, name="adam"),
        "rmsprop": keras.optimizers.RMSprop(rate, momentum=0.9, centered=True, name="rmsprop"),
    }[optimizer]
    return backend.trainer(model, chosen, loss, max_norm, target_update_period=3)


def batch(seed: int, **bad: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    arrays = {"x": x, "y": y, "add": np.zeros(()), "scale": np.zeros(())}
    for name, value in bad.items():
        arrays[name].flat[0] = value
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def step(backend: Backend, trainer: Trainer, arrays: Any, halves: bool) -> tuple[float, float]:
    """Make an update, whole or in halves; return the norm and what the target was."""
    on_device = backend.to_device(arrays)
    if halves:
        outputs, gradients = trainer.gradients(on_device)
        norm = trainer.apply([np.asarray(g) for g in gradients])
    else:
        outputs = trainer.step(on_device)
        norm = outputs["gradient_norm"]
    return float(np.asarray(norm)), float(np.asarray(outputs["target"]))


def equal(one: Trainer, other: Trainer) -> None:
    state, wanted = one.state(), other.state()
    assert state.keys() == wanted.keys()
    for name, array in state.items():
        assert array.tobytes() == wanted[name].tobytes(), name
    for a, b in zip(one.params(), other.params(), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(("optimizer", "max_norm"), [("adam", 0.3), ("rmsprop", 0.0)])
def test_bad_batches_among_good_ones_leave_no_trace(
    backend: Backend, optimizer: str, max_norm: float, halves: bool
) -> None:
    """Parameters, slots, iteration, learning rate and target are those of the run without them."""
    trainer, spared = make(backend, optimizer, max_norm), make(backend, optimizer, max_norm)
    for seed in range(8):
        for bad in BAD if seed in (0, 3, 5) else ():
            norm, _ = step(backend, trainer, batch(seed, **bad), halves)
            assert not np.isfinite(norm), bad
            equal(trainer, spared)
        got = step(backend, trainer, batch(seed), halves)
        assert got == step(backend, spared, batch(seed), halves)
        assert np.isfinite(got[0])
        equal(trainer, spared)
    name = "optimizer/iteration"
    assert trainer.state()[name] == 8
