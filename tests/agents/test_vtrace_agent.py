"""The V-trace agent: sampling, the loss against NumPy, and where gradients flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.distributions import sample_action
from seedbed.agents.protocol import ActInputs, ActOutputs, Unroll
from seedbed.agents.vtrace.agent import VtraceAgent, vtrace_loss
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.backends.protocol import Backend
from seedbed.networks.registry import make_body
from seedbed.spec import ArraySpec
from tests.ops.test_vtrace import reference
from tests.support.loss_gradients import loss_gradients

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
T, B, A = 9, 6, 4


def tensors(unroll: Unroll) -> Unroll:
    behaviour = {name: ops.convert_to_tensor(x) for name, x in unroll.behaviour.items()}
    fields = {
        name: ops.convert_to_tensor(x)
        for name, x in unroll._asdict().items()
        if name != "behaviour"
    }
    return Unroll(**fields, behaviour=behaviour)


def random_unroll(seed: int, shape: tuple[int, ...] = (5,), state: int = 0) -> Unroll:
    """Finished rows are followed by `first` rows, as the wire has them."""
    rng = np.random.default_rng(seed)
    rows = (T + 1, B)
    terminated = rng.random(rows) < 0.15
    truncated = (rng.random(rows) < 0.15) & ~terminated
    first = np.zeros(rows, bool)
    first[1:] = (terminated | truncated)[:-1]
    action = rng.integers(0, A, (T, B)).astype(np.int32)
    previous = np.concatenate([np.zeros((1, B), np.int32), action])
    return Unroll(
        observation=rng.normal(size=(*rows, *shape)).astype(np.float32),
        previous_action=np.where(first, -1, previous).astype(np.int32),
        previous_reward=np.where(first, 0, rng.normal(size=rows)).astype(np.float32),
        action=action,
        reward=rng.normal(size=rows, scale=2).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        life_lost=rng.random(rows) < 0.2,
        first=first,
        behaviour={"logits": rng.normal(size=(T, B, A)).astype(np.float32)},
        state=rng.normal(size=(B, state)).astype(np.float32),
    )


def random_outputs(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed + 100)
    logits = rng.normal(size=(T + 1, B, A)).astype(np.float32)
    return logits, rng.normal(size=(T + 1, B)).astype(np.float32)


def log_softmax(logits: Array) -> Array:
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


@pytest.mark.parametrize(
    "options",
    [
        VtraceOptions(),
        VtraceOptions(life_loss_ends=True, discount=0.9, trace_lambda=0.8),
        VtraceOptions(reward_clip=1.0, reward_scale=0.7, entropy_cost=0.1, baseline_cost=0.3),
        VtraceOptions(rho_bar=3.0, c_bar=2.0, rho_bar_policy=2.5),
    ],
)
def test_loss_equals_numpy(options: VtraceOptions) -> None:
    unroll = random_unroll(0)
    logits, value = random_outputs(0)
    loss, scalars = vtrace_loss(
        ops.convert_to_tensor(logits), ops.convert_to_tensor(value), tensors(unroll), options
    )

    pick = (*np.indices((T, B)), unroll.action)
    log_policy = log_softmax(logits[:-1])
    log_rho = log_policy[pick] - log_softmax(unroll.behaviour["logits"])[pick]
    ends = unroll.terminated[1:] | (unroll.life_lost[1:] & options.life_loss_ends)
    reward = unroll.reward[1:] * options.reward_scale
    if options.reward_clip:
        reward = np.clip(reward, -options.reward_clip, options.reward_clip)
    real = ~unroll.first[1:]
    assert 0 < real.sum() < real.size
    vs, advantage = reference(
        {
            "log_rho_tm1": log_rho,
            "discount_t": options.discount * ~ends,
            "r_t": reward,
            "v_tm1": value[:-1],
            "v_t": value[1:],
            "mask_t": real,
        },
        options.trace_lambda,
        options.rho_bar,
        options.c_bar,
        options.rho_bar_policy,
    )
    entropy = -(np.exp(log_policy) * log_policy).sum(-1)[real].mean()
    policy = -(advantage * log_policy[pick])[real].mean()
    baseline = 0.5 * ((vs - value[:-1]) ** 2)[real].mean()
    wanted = policy + options.baseline_cost * baseline - options.entropy_cost * entropy
    np.testing.assert_allclose(float(loss), wanted, rtol=1e-4)
    for name, number in {
        "policy_loss": policy,
        "baseline_loss": baseline,
        "entropy": entropy,
        "rho_mean": np.exp(log_rho)[real].mean(),
        "rho_max": np.exp(log_rho)[real].max(),
        "unmasked": real.mean(),
    }.items():
        np.testing.assert_allclose(float(scalars[name]), number, rtol=1e-4)


def gradients(
    backend: Backend, unroll: Unroll, logits: Array, value: Array, options: VtraceOptions
) -> tuple[Array, Array]:
    """The loss's gradients for the logits and the values."""

    def loss(*outputs: Any) -> Any:
        return vtrace_loss(*outputs, tensors(unroll), options)[0]

    return loss_gradients(backend, loss, logits, value)


@pytest.mark.parametrize("sign", [1, -1])
def test_logits_of_an_actor_that_lies_leave_every_number_finite(
    backend: Backend, sign: int
) -> None:
    """Within the bounds of an unroll of an actor that chooses its actions: ±1e6."""
    unroll = random_unroll(3)
    logits, value = random_outputs(3)
    behaviour = sign * 1e6 * np.eye(A, dtype=np.float32)[unroll.action]
    unroll = unroll._replace(behaviour={"logits": behaviour})
    for gradient in gradients(backend, unroll, logits, value, VtraceOptions()):
        assert np.isfinite(gradient).all()
    outputs = ops.convert_to_tensor(logits), ops.convert_to_tensor(value)
    loss, scalars = vtrace_loss(*outputs, tensors(unroll), VtraceOptions())
    for name, number in {"loss": loss, **scalars}.items():
        assert np.isfinite(float(number)), name


def test_gradients_flow_only_where_they_should(backend: Backend) -> None:
    """Targets are constants: the value's gradient is that of its own square alone, and the
    logits' is (advantage) (softmax - one-hot) / n. None at masked rows, none at the last row.
    """
    unroll = random_unroll(1)
    logits, value = random_outputs(1)
    options = VtraceOptions(entropy_cost=0.0, baseline_cost=0.5)
    to_logits, to_value = gradients(backend, unroll, logits, value, options)
    real = ~unroll.first[1:]
    pick = (*np.indices((T, B)), unroll.action)
    log_policy = log_softmax(logits[:-1])
    vs, advantage = reference(
        {
            "log_rho_tm1": log_policy[pick] - log_softmax(unroll.behaviour["logits"])[pick],
            "discount_t": options.discount * ~unroll.terminated[1:],
            "r_t": unroll.reward[1:],
            "v_tm1": value[:-1],
            "v_t": value[1:],
            "mask_t": real,
        }
    )
    n = real.sum()
    wanted_value = 0.5 * (value[:-1] - vs) * real / n
    one_hot = np.eye(A)[unroll.action]
    wanted_logits = (advantage * real)[..., None] * (np.exp(log_policy) - one_hot) / n
    np.testing.assert_allclose(to_value[:-1], wanted_value, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(to_logits[:-1], wanted_logits, rtol=1e-3, atol=1e-6)
    assert not to_value[-1].any()
    assert not to_logits[-1].any()
    assert not to_value[:-1][~real].any()
    assert not to_logits[:-1][~real].any()


def one_column(**changes: Array) -> Unroll:
    """Two steps, then the episode's finished row, then the next episode's rows."""
    rows = (6, 1)
    falses = np.zeros(rows, bool)
    unroll = Unroll(
        observation=np.zeros((*rows, 1), np.float32),
        previous_action=np.zeros(rows, np.int32),
        previous_reward=np.zeros(rows, np.float32),
        action=np.zeros((5, 1), np.int32),
        reward=np.ones(rows, np.float32),
        terminated=falses,
        truncated=falses,
        life_lost=falses,
        first=np.array([[0], [0], [0], [1], [0], [0]], bool),
        behaviour={"logits": np.zeros((5, 1, A), np.float32)},
        state=np.zeros((1, 0), np.float32),
    )
    return unroll._replace(**changes)


def value_gradient(backend: Backend, unroll: Unroll, value: Array) -> Array:
    """vs - V at each row but the last, read off the gradient of the value loss."""
    options = VtraceOptions(discount=0.5, baseline_cost=1.0, entropy_cost=0.0)
    logits = np.zeros((6, 1, A), np.float32)
    _, to_value = gradients(backend, unroll, logits, value, options)
    real = (~unroll.first[1:]).sum()
    result: Array = -to_value[:-1, 0] * real
    return result


@pytest.mark.parametrize("end", ["terminated", "truncated", "life_lost"])
def test_ends_of_episodes(backend: Backend, end: str) -> None:
    """Row 2 is finished, row 3 is the next episode's first."""
    value = np.array([[1.0], [2.0], [8.0], [3.0], [4.0], [5.0]], np.float32)
    flag = np.array([[0], [0], [1], [0], [0], [0]], bool)
    unroll = one_column(**{end: flag})
    if end == "life_lost":  # no end of anything, unless asked for
        unroll = unroll._replace(first=np.zeros((6, 1), bool))
        target_5 = 5.0
        targets = [0.0] * 5
        for t in reversed(range(5)):
            target_5 = 1 + 0.5 * target_5
            targets[t] = target_5
    else:
        last = 0.0 if end == "terminated" else 8.0  # a truncated row bootstraps from itself
        at_1 = 1 + 0.5 * last
        at_4 = 1 + 0.5 * 5.0
        targets = [1 + 0.5 * at_1, at_1, 8.0, 1 + 0.5 * at_4, at_4]
    np.testing.assert_allclose(
        value_gradient(backend, unroll, value), np.array(targets) - value[:-1, 0], atol=1e-5
    )


def test_sampling_follows_the_policy() -> None:
    """Evenly spread uniform numbers give every action its share, to one part."""
    n = 5000
    logits = np.log(np.array([0.1, 0.2, 0.0001, 0.3, 0.3999], np.float32))
    uniform = ((np.arange(n) + 0.5) / n).astype(np.float32)
    actions = ops.convert_to_numpy(
        sample_action(
            ops.convert_to_tensor(np.tile(logits, (n, 1))), ops.convert_to_tensor(uniform)
        )
    )
    assert actions.dtype == np.int32
    share = np.bincount(actions, minlength=5) / n
    np.testing.assert_allclose(share, np.exp(logits), atol=1.5 / n)


def test_sampling_stays_inside() -> None:
    """At both ends of [0, 1], and never the first action, which is impossible here."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2000, 18), scale=3).astype(np.float32)
    logits[:, 0] = -1e9
    for uniform in (0.0, np.nextafter(np.float32(1), np.float32(0)), 1.0):
        u = np.full(2000, uniform, np.float32)
        actions = ops.convert_to_numpy(
            sample_action(ops.convert_to_tensor(logits), ops.convert_to_tensor(u))
        )
        assert actions.min() >= 1
        assert actions.max() <= 17


def make_agent(units: int = 0) -> VtraceAgent:
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, units)
    return VtraceAgent(VtraceOptions(), body, A)


def act(agent: VtraceAgent, unroll: Unroll, t: int, state: Any, greedy: bool) -> ActOutputs:
    noise = np.random.default_rng(t).random((B, 1)).astype(np.float32)
    inputs = (
        unroll.observation[t],
        unroll.previous_action[t],
        unroll.previous_reward[t],
        unroll.first[t],
        np.arange(B, dtype=np.int32),
        noise,
    )
    params = [v.value for v in agent.model.trainable_variables]
    inputs = ActInputs(*(ops.convert_to_tensor(x) for x in inputs))
    return agent.act(params, inputs, ops.convert_to_tensor(state), greedy)


@pytest.mark.parametrize("units", [0, 8])
def test_acting_and_the_loss_see_the_same_policy(units: int) -> None:
    """ρ is 1 everywhere for an unroll that the same parameters acted."""
    agent = make_agent(units)
    unroll = random_unroll(3, state=agent.body.state_size)
    state: Any = unroll.state
    actions, logits = [], []
    for t in range(T):
        out = act(agent, unroll, t, state, greedy=False)
        state = out.state
        actions.append(ops.convert_to_numpy(out.action))
        logits.append(ops.convert_to_numpy(out.behaviour["logits"]))
    unroll = unroll._replace(action=np.stack(actions), behaviour={"logits": np.stack(logits)})
    params = [v.value for v in agent.model.trainable_variables]
    _, scalars = agent.loss(params, tensors(unroll))
    np.testing.assert_allclose(float(scalars["rho_mean"]), 1.0, atol=1e-5)
    np.testing.assert_allclose(float(scalars["rho_max"]), 1.0, atol=1e-5)


def test_greedy_takes_the_mode() -> None:
    agent = make_agent()
    unroll = random_unroll(4)
    out = act(agent, unroll, 0, unroll.state, greedy=True)
    logits = ops.convert_to_numpy(out.behaviour["logits"])
    np.testing.assert_array_equal(ops.convert_to_numpy(out.action), logits.argmax(-1))
    assert logits.shape[1:] == agent.behaviour["logits"].shape


def test_parameters_are_arguments() -> None:
    """Acting and the loss use the parameters they are given, not the model's own."""
    agent = make_agent()
    unroll = random_unroll(5)
    zeros = [ops.zeros_like(v.value) for v in agent.model.trainable_variables]
    _, scalars = agent.loss(zeros, tensors(unroll))
    np.testing.assert_allclose(float(scalars["entropy"]), np.log(A), rtol=1e-6)
