"""Both backends keep the promises of `backend/protocol.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.arithmetic import clip_by_global_norm
from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]


# inference


def test_inference_gathers_and_scatters(backend: Backend) -> None:
    """Against NumPy tables, over batches of several sizes, with padding."""
    slots = 7
    specs = {
        "frames": ArraySpec((2, 3), "uint8"),
        "state": ArraySpec((4,), "float32"),
        "nothing": ArraySpec((0,), "float32"),
    }

    def function(tables: Any, params: Any, slot: Any, inputs: Any) -> Any:
        before = tables.take("state", slot)
        frames = tables.take("frames", slot) + ops.cast(inputs["x"][:, :1, None], "uint8")
        tables.put("frames", slot, frames)
        tables.put("state", slot, before + params[0] * inputs["x"])
        tables.put("nothing", slot, tables.take("nothing", slot))
        return {"before": before, "frame": frames}

    tables = backend.tables({name: (slots + 1, spec) for name, spec in specs.items()})
    run = tables.compile_inference(function)
    wanted_state = np.zeros((slots + 1, 4), np.float32)
    wanted_frames = np.zeros((slots + 1, 2, 3), np.uint8)
    rng = np.random.default_rng(0)
    for size in (3, 1, 7, 3, 5):
        chosen = rng.permutation(slots)[:size].astype(np.int32)
        padded = np.concatenate([chosen, np.full(2, slots, np.int32)])
        x = rng.integers(0, 5, (size + 2, 4)).astype(np.float32)
        params = [ops.convert_to_tensor(np.float32(rng.normal()))]
        out = run(params, padded, {"x": x})
        before = np.asarray(out["before"])
        np.testing.assert_allclose(before[:size], wanted_state[chosen], rtol=1e-5)
        wanted_state[chosen] += float(params[0]) * x[:size]
        wanted_frames[chosen] += x[:size, :1, None].astype(np.uint8)
        np.testing.assert_array_equal(np.asarray(out["frame"])[:size], wanted_frames[chosen])
        now = tables.read()
        np.testing.assert_allclose(now["state"][:-1], wanted_state[:-1], rtol=1e-5)
        np.testing.assert_array_equal(now["frames"][:-1], wanted_frames[:-1])


# training


def make_trainer(
    backend: Backend, max_gradient_norm: float = 0.0, rate: Any = 0.1, units: int = 2
) -> tuple[Trainer, keras.Model]:
    """Least squares of a named dense layer."""
    np.random.seed(0)
    model = keras.Sequential([keras.layers.Dense(units, name="dense")], name="model")
    model.build((None, 3))
    for variable in model.trainable_variables:
        variable.assign(np.random.normal(size=variable.shape))

    def loss(params: Any, _: Any, batch: Any) -> Any:
        y, _ = model.stateless_call(params, [], batch["x"])
        error = ops.mean(ops.square(y - batch["y"]))
        return error, {"mean": ops.mean(y)}

    optimizer = keras.optimizers.Adam(rate, name="adam")
    return backend.trainer(model, optimizer, loss, max_gradient_norm), model


def batches(backend: Backend, units: int = 2) -> list[Any]:
    rng = np.random.default_rng(1)
    return [
        backend.to_device(
            {
                "x": rng.normal(size=(4, 3)).astype(np.float32),
                "y": rng.normal(size=(4, units)).astype(np.float32),
            }
        )
        for _ in range(12)
    ]


def hosts(backend: Backend, params: Any) -> list[Array]:
    return [np.array(np.asarray(p)) for p in params]


def test_training_steps_equal_numpy(backend: Backend) -> None:
    """Adam, written out (Kingma & Ba 2015, algorithm 1), with and without clipping."""
    for max_norm in (0.0, 0.3):
        trainer, _ = make_trainer(backend, max_norm)
        w, b = (p.astype(np.float64) for p in hosts(backend, trainer.params()))
        slots = [[np.zeros_like(p), np.zeros_like(p)] for p in (w, b)]
        for step, batch in enumerate(batches(backend), start=1):
            x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
            error = x @ w + b - y
            gradients = [2 * x.T @ error / error.size, 2 * error.sum(0) / error.size]
            norm = np.sqrt(sum((g**2).sum() for g in gradients))
            if max_norm:
                gradients = [g * min(1.0, max_norm / norm) for g in gradients]
            scalars = trainer.step(batch)
            np.testing.assert_allclose(float(scalars["loss"]), (error**2).mean(), rtol=1e-4)
            np.testing.assert_allclose(float(scalars["gradient_norm"]), norm, rtol=1e-4)
            np.testing.assert_allclose(
                float(scalars["mean"]), (error + y).mean(), rtol=1e-3, atol=1e-5
            )
            for p, g, slot in zip((w, b), gradients, slots, strict=True):
                slot[0] = 0.9 * slot[0] + 0.1 * g
                slot[1] = 0.999 * slot[1] + 0.001 * g**2
                m, v = slot[0] / (1 - 0.9**step), slot[1] / (1 - 0.999**step)
                p -= 0.1 * m / (np.sqrt(v) + 1e-7)
        for got, wanted in zip(hosts(backend, trainer.params()), (w, b), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)


def test_published_parameters_never_change(backend: Backend) -> None:
    """Also when another thread reads them all the time while the trainer goes on."""
    trainer, _ = make_trainer(backend)
    first, *rest = batches(backend)
    before = trainer.params()
    before_values = hosts(backend, before)
    trainer.step(first)
    held = trainer.params()
    values = hosts(backend, held)
    torn: list[int] = []
    stop, started = threading.Event(), threading.Event()

    def read() -> None:
        count = 0
        while not stop.is_set() or count == 0:
            for now, then in zip(hosts(backend, held), values, strict=True):
                if not np.array_equal(now, then):
                    torn.append(count)
            count += 1
            started.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(60)
    for batch in rest:
        trainer.step(batch)
    stop.set()
    reader.join(60)
    assert not reader.is_alive()
    assert not torn
    for params, kept in ((before, before_values), (held, values)):
        for now, then in zip(hosts(backend, params), kept, strict=True):
            np.testing.assert_array_equal(now, then)
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(hosts(backend, trainer.params()), values, strict=True)
    )


def test_state_resumes_bit_by_bit(backend: Backend) -> None:
    trainer, _ = make_trainer(backend)
    early, late = batches(backend)[:5], batches(backend)[5:]
    for batch in early:
        trainer.step(batch)
    state = trainer.state()
    assert sorted(state) == [
        "model/dense/bias",
        "model/dense/kernel",
        "optimizer/iteration",
        "optimizer/model_dense_bias_momentum",
        "optimizer/model_dense_bias_velocity",
        "optimizer/model_dense_kernel_momentum",
        "optimizer/model_dense_kernel_velocity",
    ]
    assert int(state["optimizer/iteration"]) == 5
    saved = {name: array.copy() for name, array in state.items()}
    for batch in late:
        trainer.step(batch)
    for name, array in state.items():
        np.testing.assert_array_equal(array, saved[name])  # a copy, not a view
    other, _ = make_trainer(backend)
    other.load(state)
    for batch in late:
        other.step(batch)
    for name, array in trainer.state().items():
        np.testing.assert_array_equal(other.state()[name], array)


def test_a_warm_start_takes_the_model_alone(backend: Backend) -> None:
    trainer, _ = make_trainer(backend)
    for batch in batches(backend)[:3]:
        trainer.step(batch)
    other, _ = make_trainer(backend)
    model = {n: a for n, a in trainer.state().items() if n.startswith("model/")}
    other.load(model, optimizer=False)
    np.testing.assert_array_equal(other.state()["model/dense/kernel"], model["model/dense/kernel"])
    assert int(other.state()["optimizer/iteration"]) == 0


def test_a_new_learning_rate_survives_the_load(backend: Backend) -> None:
    trainer, _ = make_trainer(backend, rate=0.1)
    trainer.step(batches(backend)[0])
    other, _ = make_trainer(backend, rate=1e-30)
    other.load(trainer.state())
    other.step(batches(backend)[1])
    for name in ("model/dense/kernel", "model/dense/bias"):
        np.testing.assert_array_equal(other.state()[name], trainer.state()[name])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model/dense/kernel": None}, r"missing \['model/dense/kernel'\]"),
        ({"model/other/kernel": np.zeros(1)}, r"not known here \['model/other/kernel'\]"),
        ({"model/dense/kernel": np.zeros((3, 5))}, r"\[3, 5\] in the checkpoint and \[3, 2\]"),
        (
            {"optimizer/model_dense_bias_momentum": None},
            r"missing \['optimizer/model_dense_bias_momentum'\]",
        ),
    ],
)
def test_a_state_that_does_not_fit(backend: Backend, change: dict[str, Any], says: str) -> None:
    """It is refused, and nothing of it is taken."""
    trainer, _ = make_trainer(backend)
    state = {name: array + 1 for name, array in trainer.state().items()}
    state = {n: a for n, a in {**state, **change}.items() if a is not None}
    before = trainer.state()
    with pytest.raises(SeedbedError, match=says) as error:
        trainer.load(state)
    assert error.value.code is ExitCode.CHECKPOINT_READ
    for name, array in trainer.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_loss_that_is_not_finite_is_seen(backend: Backend) -> None:
    trainer, _ = make_trainer(backend, max_gradient_norm=1.0)
    batch = {"x": np.full((4, 3), np.nan, np.float32), "y": np.zeros((4, 2), np.float32)}
    scalars = trainer.step(backend.to_device(batch))
    assert not np.isfinite(float(scalars["loss"]))
    assert not np.isfinite(float(scalars["gradient_norm"]))


def test_clipping() -> None:
    gradients = [ops.convert_to_tensor([3.0, 0.0]), ops.convert_to_tensor([[4.0]])]
    for max_norm, scale in ((1.0, 0.2), (5.0, 1.0), (50.0, 1.0), (0.0, 1.0)):
        clipped, norm = clip_by_global_norm(gradients, max_norm)
        assert float(norm) == pytest.approx(5.0)
        assert float(clipped[0][0]) == pytest.approx(3.0 * scale)
        assert float(clipped[1][0, 0]) == pytest.approx(4.0 * scale)


@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan")])
def test_a_norm_that_overflows_leaves_no_gradient_to_use(value: float) -> None:
    gradients = [ops.convert_to_tensor([value, 1.0]), ops.convert_to_tensor([[4.0]])]
    clipped, norm = clip_by_global_norm(gradients, 40.0)
    assert not np.isfinite(float(norm))
    assert all(np.isnan(np.asarray(array)).all() for array in clipped), "0 would be an update"


# processes


def run_python(code: str, *arguments: str) -> dict[str, Any]:
    """Run code in a process of its own; its last line of output is JSON."""
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["stderr"] = done.stderr
    return result


AGENT = """
import json, sys
import numpy as np
from seedbed import backends
backend = backends.use(sys.argv[1])
from seedbed.config.load import parse_experiment
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.factory import build_agent
from seedbed.optimizers import build_optimizer
experiment = parse_experiment(
    "name: a\\nenvironment: {id: x}\\nlearner: {network: impala_shallow, lstm_units: 8}"
)
spec = EnvironmentSpec("x", ArraySpec((24, 28), "uint8"), 5, 1)
agent = build_agent(experiment, spec)
trainer = backend.trainer(agent.model, build_optimizer(experiment, 1), None, 0.0)
rng = np.random.default_rng(0)
shape = (3, 2)
arguments = (
    rng.integers(0, 255, (*shape, *agent.body.stacked.shape)).astype(np.uint8),
    rng.integers(-1, 5, shape).astype(np.int32), rng.normal(size=shape).astype(np.float32),
    rng.random(shape) < 0.3, rng.normal(size=(2, 16)).astype(np.float32),
)
def outputs():
    (logits, value, state), _ = agent.model.stateless_call(trainer.params(), [], *arguments)
    return [np.asarray(x).tolist() for x in (logits, value, state)]
"""


@pytest.fixture(scope="module")
def once(backend: Backend) -> None:
    """For tests that start processes of their own: one of the two runs is enough."""
    if backend.name == "jax":
        pytest.skip("done by the run under tensorflow")


@pytest.fixture(scope="module")
def from_tensorflow(
    once: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """A state changed and saved under TensorFlow, and what the model gives with it."""
    path = str(tmp_path_factory.mktemp("state") / "state.npz")
    code = """
initial = outputs()
state = trainer.state()
for name in state:
    state[name] = state[name] + np.asarray(rng.normal(size=state[name].shape, scale=0.05)).astype(
        state[name].dtype)
trainer.load(state)
np.savez(sys.argv[2], **trainer.state())
print(json.dumps({"outputs": outputs(), "initial": initial}))
"""
    return path, run_python(AGENT + code, "tensorflow", path)


@pytest.mark.slow
def test_a_state_opens_under_jax(from_tensorflow: tuple[str, dict[str, Any]]) -> None:
    """One seed gives the same weights under both; a state of one opens under the other."""
    path, wanted = from_tensorflow
    code = """
initial = outputs()
trainer.load(dict(np.load(sys.argv[2])))
print(json.dumps({
    "outputs": outputs(), "initial": initial, "tensorflow": "tensorflow" in sys.modules}))
"""
    got = run_python(AGENT + code, "jax", path)
    for key in ("initial", "outputs"):
        for a, b in zip(got[key], wanted[key], strict=True):
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-4, atol=1e-5)
    assert not got["tensorflow"]


JAX_ALONE = """
def loss(params, target, batch):
    (logits, value, _), _ = agent.model.stateless_call(params, [], *batch["arguments"])
    return logits.mean() + value.mean(), {}
trainer = backend.trainer(agent.model, build_optimizer(experiment, 1), loss, 1.0)
with backend.profile(sys.argv[2]):
    loss = float(trainer.step({"arguments": arguments})["loss"])
print(json.dumps({"loss": loss, "devices": backend.devices()}))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("once")
def test_jax_works_where_tensorflow_is_not_installed(tmp_path: Path) -> None:
    code = "import sys; sys.modules['tensorflow'] = None\n" + AGENT + JAX_ALONE
    result = run_python(code, "jax", str(tmp_path))
    assert np.isfinite(result["loss"])
    assert "cpu:0" in result["devices"]
    assert list(tmp_path.rglob("*.pb")), "no profile was written"


def test_devices_and_profile(backend: Backend, tmp_path: Path) -> None:
    assert "cpu:0" in backend.devices()
    with backend.profile(str(tmp_path)):
        ops.sum(ops.ones(3))
    assert list(tmp_path.rglob("*.pb"))


@pytest.mark.slow
@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("threads", [0, 1])
def test_a_process_in_which_tensorflow_has_computed(threads: int) -> None:
    """A notebook, for example. TensorFlow takes its threads before its first operation alone."""
    code = """
import json, sys
import tensorflow as tf
tf.constant(1.0) + 1.0
from seedbed import backends
backend = backends.use("tensorflow", operation_threads=int(sys.argv[1]))
print(json.dumps({"name": backend.name}))
"""
    result = run_python(code, str(threads))
    assert result["name"] == "tensorflow"
    assert ("learner.operation_threads 1 has no effect" in result["stderr"]) == (threads == 1)


def test_another_backend_is_refused(backend: Backend) -> None:
    from seedbed import backends

    other = {"tensorflow": "jax", "jax": "tensorflow"}[backend.name]
    with pytest.raises(SeedbedError, match="already runs") as error:
        backends.use(other)
    assert error.value.code is ExitCode.BACKEND
    assert backends.use(backend.name) is backend
