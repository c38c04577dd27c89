"""`learner.precision: bfloat16`: what is rounded, what is not, and how far the results are off."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.training_step import on_policy_loss, replay_loss
from seedbed.backends.protocol import Backend
from seedbed.config import parse_experiment
from seedbed.factory import build_agent
from seedbed.gossip.parameters import ParameterLayout
from seedbed.networks.body import Body
from seedbed.networks.image import FirstConvolution
from seedbed.networks.registry import make_body
from seedbed.optimizers import build_optimizer
from seedbed.spec import ArraySpec, EnvironmentSpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
R, B, A, STACK = 6, 3, 4, 2
FRAME = ArraySpec((24, 28), "uint8")
JAX = os.environ.get("SEEDBED_TEST_BACKEND") == "jax"


class OwnNetwork(keras.layers.Layer):
    """A user's torso, which knows nothing of precisions."""

    def __init__(self) -> None:
        super().__init__(name="torso")
        self.dense = keras.layers.Dense(5)
        self.scale = self.add_weight(name="scale", shape=(5,), initializer="ones")

    def call(self, x: Any) -> Any:
        flat = ops.reshape(ops.cast(x, "float32"), (-1, np.prod(x.shape[1:])))
        return self.dense(flat) * self.scale


def zeros(body: Body) -> list[Any]:
    return [ops.zeros(symbol.shape, symbol.dtype) for symbol in body.symbols()]


def agent_of(precision: str, agent: str = "vtrace", network: str = "impala_shallow") -> Any:
    experiment = parse_experiment(
        f"""
        name: precision
        environment: {{id: x}}
        agent: {agent}
        learner:
          precision: {precision}
          network: {network}
          network_options: {"{standardize: true}" if "shallow" in network else "{}"}
          lstm_units: 8
          frame_stack: {STACK}
          unroll_length: {R - 1}
        {"r2d2: {burn_in: 1, dueling_units: 16, n_steps: 2}" if agent == "r2d2" else ""}
        """
    )
    spec = EnvironmentSpec("x", FRAME, A, 1)
    return build_agent(experiment, spec), build_optimizer(experiment, 1)


def batch_of(agent: Any) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    arrays = {
        "observation": rng.integers(0, 256, (STACK - 1 + R, B, *FRAME.shape)).astype(np.uint8),
        "flags": np.zeros((STACK - 1 + R, B), np.uint8),
        "reward": rng.normal(size=(R, B)).astype(np.float32),
        "action": rng.integers(0, A, (R - 1, B)).astype(np.int32),
        "previous_action": rng.integers(0, A, B).astype(np.int32),
        "state": rng.normal(size=(B, 16)).astype(np.float32),
        "probability": rng.random(B).astype(np.float32),
    }
    for name, spec in agent.behaviour.items():
        arrays[f"behaviour/{name}"] = rng.normal(size=(R - 1, B, *spec.shape)).astype(np.float32)
    return arrays


def trainer_of(
    backend: Backend, precision: str, agent_name: str
) -> tuple[Any, Any, dict[str, Any]]:
    agent, optimizer = agent_of(precision, agent_name)
    loss: Any = on_policy_loss(agent, STACK)
    if agent.trains_from_replay:
        loss = replay_loss(agent, STACK, 0.6)
    period = agent.target_update_period
    trainer = backend.trainer(agent.model, optimizer, loss, 0.0, period)
    return agent, trainer, backend.to_device(batch_of(agent))


def dtype_of(array: Any) -> str:
    return str(keras.backend.standardize_dtype(array.dtype))


@pytest.mark.slow_after(1)
@pytest.mark.slow_on_jax
@pytest.mark.parametrize("agent_name", ["vtrace", "r2d2"])
def test_what_is_kept_is_float32_and_gradients_are_near(agent_name: str, backend: Backend) -> None:
    """Parameters, optimizer, gradients, losses, priorities, checkpoints; state, logits or Q."""
    found = []
    trainers = []
    for precision in ("float32", "bfloat16"):
        agent, trainer, batch = trainer_of(backend, precision, agent_name)
        outputs, gradients = trainer.gradients(batch)
        assert ("priority" in outputs) == (agent_name == "r2d2")
        arrays = [*trainer.params(), *gradients, *outputs.values(), *agent.model.variables]
        arrays += agent.model(*zeros(agent.body))
        assert {dtype_of(array) for array in arrays} == {"float32"}
        kept = {str(a.dtype) for a in trainer.state().values() if a.dtype.kind not in "iu"}
        assert kept == {"float32"}
        found.append([np.asarray(g).ravel() for g in gradients])
        trainers.append(trainer)

    # What gossip and all-reduce send are these numbers, bit for bit.
    names, shapes = zip(*trainer.layout(), strict=True)
    layout = ParameterLayout(names, shapes)
    flat = layout.flatten([np.asarray(a) for a in trainer.params()])
    assert flat.dtype == np.float32
    for sent, array in zip(layout.split(flat), trainer.params(), strict=True):
        np.testing.assert_array_equal(sent, np.asarray(array))

    # The policy is of the body alone.
    assert keras.config.dtype_policy().name == "float32"
    whole = [np.concatenate(gradients) for gradients in found]
    assert 1e-6 < np.linalg.norm(whole[0] - whole[1]) / np.linalg.norm(whole[0]) < 0.1
    for exact, near in zip(*found, strict=True):
        assert np.linalg.norm(exact - near) <= 0.2 * np.linalg.norm(exact) + 1e-6

    # A run in one precision resumes in another.
    trainers[0].set_params([2 * np.asarray(a) for a in trainers[0].params()])
    trainers[1].load(trainers[0].state())
    for one, two in zip(*(trainer.params() for trainer in trainers), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


def products(function: Callable[..., Any], *arguments: Any) -> Counter[tuple[str, str, str]]:
    """Operation, and the dtypes of its inputs and output, of every product in a compiled call."""
    if JAX:
        import jax
        from jax.extend.core import jaxprs_in_params

        found: Counter[tuple[str, str, str]] = Counter()
        names = {"conv_general_dilated": "conv", "dot_general": "dot"}

        def walk(jaxpr: Any) -> None:
            for equation in jaxpr.eqns:
                if equation.primitive.name in names:
                    kinds = {str(v.aval.dtype) for v in equation.invars}
                    out = str(equation.outvars[0].aval.dtype)
                    found[names[equation.primitive.name], "+".join(sorted(kinds)), out] += 1
                for inner in jaxprs_in_params(equation.params):
                    walk(inner)

        walk(jax.make_jaxpr(function)(*arguments).jaxpr)
        return found
    import tensorflow as tf

    graph = tf.function(function).get_concrete_function(*arguments).graph
    operations = list(graph.get_operations())
    for library in graph._functions.values() if hasattr(graph, "_functions") else ():
        operations += library.graph.get_operations()
    names = {"Conv2D": "conv", "MatMul": "dot", "BatchMatMulV2": "dot"}
    return Counter(
        (names[op.type], op.inputs[0].dtype.name, op.outputs[0].dtype.name)
        for op in operations
        if op.type in names
    )


def test_bodies_multiply_in_bfloat16_and_the_first_convolution_adds_in_float32() -> None:
    agent, _ = agent_of("bfloat16", "r2d2")
    params = [ops.convert_to_tensor(v) for v in agent.model.trainable_variables]
    arguments = zeros(agent.body)

    def forward(params: Any, arguments: Any) -> Any:
        outputs, _ = agent.model.stateless_call(params, [], *arguments)
        return outputs

    found = products(forward, params, arguments)
    # TensorFlow multiplies the rounded numbers in float32, where the products are exact.
    first = ("conv", "bfloat16" if JAX else "float32", "float32")
    convolutions = {key: count for key, count in found.items() if key[0] == "conv"}
    assert convolutions.pop(first) == 1
    assert convolutions == {("conv", "bfloat16", "bfloat16"): 1}
    dots = {key: count for key, count in found.items() if key[0] == "dot"}
    # Dense, two products of the LSTM and two hidden layers of the heads; the values are float32.
    assert dots == {("dot", "bfloat16", "bfloat16"): 5, ("dot", "float32", "float32"): 2}


def test_float32_has_nothing_of_it() -> None:
    agent, _ = agent_of("float32", "r2d2")
    params = [ops.convert_to_tensor(v) for v in agent.model.trainable_variables]
    arguments = zeros(agent.body)
    found = products(
        lambda params, arguments: agent.model.stateless_call(params, [], *arguments)[0],
        params, arguments,
    )  # fmt: skip
    assert {dtype for key in found for dtype in key[1:]} == {"float32"}


def rounded(x: Array) -> Array:
    """To the nearest bfloat16, ties to even, by the bits of a float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def first_convolution(standardize: bool) -> FirstConvolution:
    np.random.seed(1)
    body = make_body("impala_shallow", {"standardize": standardize}, FRAME, A, 1, 0, "bfloat16")
    first: FirstConvolution = body.torso.first
    first.bias.assign(np.random.uniform(-0.1, 0.1, first.bias.shape).astype(np.float32))
    return first


def rounded_kernel(first: FirstConvolution) -> Array:
    """What is rounded is the kernel of bytes."""
    return 255.0 * rounded(np.asarray(first.kernel) * np.float32(1 / 255))


def reference(images: Array, kernel: Array, bias: Array, standardize: bool) -> tuple[Array, Array]:
    """By the formula, patch by patch, in float64: outputs, and the patches that made them."""
    x = images / 255.0
    if standardize:
        mean, deviation = x.mean((1, 2, 3), keepdims=True), x.std((1, 2, 3), keepdims=True)
        x = (x - mean) / np.maximum(deviation, 1 / 255)
    steps = [range(0, size - 7, 4) for size in images.shape[1:3]]
    patches = np.array([[x[:, i : i + 8, j : j + 8] for j in steps[1]] for i in steps[0]])
    sums = np.einsum("ijnabc,abcf->nijf", patches, kernel)
    return np.maximum(sums + bias, 0.0), patches


@pytest.mark.parametrize("standardize", [False, True])
def test_the_first_convolution_loses_only_what_its_kernel_does(standardize: bool) -> None:
    """A screen of hardly any contrast is where standardization cancels most digits."""
    first = first_convolution(standardize)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (3, *FRAME.shape, 1)).astype(np.uint8)
    images[1] = images[1] // 50 + 187
    images[2] = 200
    kernel, bias = np.asarray(first.kernel).astype(np.float64), np.asarray(first.bias)
    exact, _ = reference(images, rounded_kernel(first), bias, standardize)
    wanted, _ = reference(images, kernel, bias, standardize)
    output = first(first.prepare(ops.convert_to_tensor(images[..., 0])))
    assert dtype_of(output) == ("float32" if standardize else "bfloat16")
    given = np.asarray(ops.cast(output, "float32"))
    # Without standardization the sum, the bias and their sum are rounded.
    tolerance = {"atol": 2e-3} if standardize else {"rtol": 2**-8, "atol": 1e-3}
    np.testing.assert_allclose(given, exact, **tolerance)
    assert np.linalg.norm(given - wanted) <= 0.004 * np.linalg.norm(wanted)


def test_the_gradient_of_the_first_kernel(backend: Backend) -> None:
    """Against sums over patches, with the rounding of bfloat16 to 8 bits and no more.

    A CPU without bfloat16 may round each partial sum of n terms to 8 bits, by 2^-8 of it at most.
    The terms have either sign, so partial sums grow as a root does, and so do their roundings:
    together they are at most 2^-8 * sqrt(n / 2) of the result, in the norm of the whole kernel.
    """
    first = first_convolution(False)
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (3, *FRAME.shape, 1)).astype(np.uint8)
    output, patches = reference(images, rounded_kernel(first), np.asarray(first.bias), False)
    cotangent = rng.normal(size=output.shape)
    wanted = np.einsum("ijnabc,nijf->abcf", patches, cotangent * (output > 0))

    def loss(params: Any, _: Any, batch: Any) -> Any:
        (x, _) = first.stateless_call(params, [], first.prepare(batch["images"]))
        return ops.sum(ops.cast(x, "float32") * batch["cotangent"]), {}

    batch = backend.to_device({"images": images[..., 0], "cotangent": cotangent.astype(np.float32)})
    trainer = backend.trainer(first, keras.optimizers.SGD(), loss, 0.0)
    _, (given, _) = trainer.gradients(batch)
    assert dtype_of(given) == "float32"
    error = np.linalg.norm(np.asarray(given) - wanted) / np.linalg.norm(wanted)
    terms = output.shape[0] * output.shape[1] * output.shape[2]
    assert 1e-5 < error < 2**-8 * np.sqrt(terms / 2)


def test_a_users_network_has_the_policy_and_float32_variables() -> None:
    agent, _ = agent_of("bfloat16", network=f"{__name__}:OwnNetwork")
    body = agent.body
    assert body.torso.dtype_policy.name == body.torso.dense.dtype_policy.name == "mixed_bfloat16"
    assert {dtype_of(v) for v in agent.model.variables} == {"float32"}
    features, state = body(*zeros(body))
    assert dtype_of(features) == dtype_of(state) == "float32"
