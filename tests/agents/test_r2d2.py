"""R2D2: the loss against a walk through every window, where gradients flow, how it explores."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.dqn.agent import DqnAgent
from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.exploration import exploration_range, exploration_table
from seedbed.agents.options import QLearningOptions
from seedbed.agents.protocol import ActInputs, ActOutputs, SequenceWindow, Unroll
from seedbed.agents.q_loss import SMALLEST_PRIORITY, q_loss
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.agents.r2d2.options import R2d2Options
from seedbed.agents.training_step import importance_weights
from seedbed.backends.protocol import Backend
from seedbed.config import load_experiment
from seedbed.factory import build_agent
from seedbed.networks.dueling import Dueling
from seedbed.networks.registry import make_body
from seedbed.spec import ArraySpec, EnvironmentSpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
R, B, A = 13, 8, 4
ATARI = Path(__file__).parents[2] / "experiments/atari-r2d2.yaml"
TIMED = (
    "observation",
    "previous_action",
    "previous_reward",
    "reward",
    "terminated",
    "truncated",
    "life_lost",
    "first",
)


def random_unroll(seed: int, rows: int = R, state: int = 0) -> Unroll:
    """Finished rows are followed by `first` rows; some episodes are cut: a `first` row that
    follows no finished one.
    """
    rng = np.random.default_rng(seed)
    shape = (rows, B)
    terminated = rng.random(shape) < 0.1
    truncated = (rng.random(shape) < 0.1) & ~terminated
    first = rng.random(shape) < 0.05
    first[1:] |= (terminated | truncated)[:-1]
    terminated, truncated = terminated & ~first, truncated & ~first
    action = rng.integers(0, A, (rows - 1, B)).astype(np.int32)
    previous = np.concatenate([rng.integers(0, A, (1, B)), action])
    reward = rng.normal(size=shape, scale=2).astype(np.float32)
    return Unroll(
        observation=rng.normal(size=(*shape, 5)).astype(np.float32),
        previous_action=np.where(first, -1, previous).astype(np.int32),
        previous_reward=np.where(first, 0, reward).astype(np.float32),
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        life_lost=rng.random(shape) < 0.15,
        first=first,
        behaviour={},
        state=rng.normal(size=(B, state)).astype(np.float32),
    )


def tensors(unroll: Unroll) -> Unroll:
    fields = unroll._asdict()
    fields.pop("behaviour")
    return Unroll(**{n: ops.convert_to_tensor(x) for n, x in fields.items()}, behaviour={})


def random_q(seed: int, rows: int = R) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed + 100)
    q, target_q = rng.normal(size=(2, rows, B, A), scale=3).astype(np.float32)
    return q, target_q


def h(x: float, epsilon: float) -> float:
    """Equation of Pohlen et al. 2018, section 3.2."""
    return float(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + epsilon * x)


def h_inverse(x: float, epsilon: float) -> float:
    """Their proposition A.2."""
    if not epsilon:
        return x
    root = (np.sqrt(1 + 4 * epsilon * (abs(x) + 1 + epsilon)) - 1) / (2 * epsilon)
    return float(np.sign(x) * (root**2 - 1))


def reference(
    q: Array, target_q: Array, unroll: Unroll, options: QLearningOptions
) -> tuple[Array, NDArray[np.bool_]]:
    """Errors [R-1, B] in float64, each window walked along by itself, and which are real."""
    epsilon = options.value_rescaling_epsilon
    rows, columns = unroll.first.shape
    errors = np.zeros((rows - 1, columns))
    for b in range(columns):
        for t in range(rows - 1):
            if unroll.first[t + 1, b]:
                continue  # nobody chose what comes next
            at, total, weight = t, 0.0, 1.0
            while at < t + options.n_steps and weight:
                if at == rows - 1 or unroll.first[at + 1, b]:
                    break  # the sequence, or the episode, has no more: its own value
                at += 1
                reward = float(unroll.reward[at, b])
                if options.optimistic_asymmetric_clip:
                    reward = math.tanh(reward) * (5.0 if reward > 0 else 0.3)
                if options.reward_clip:
                    reward = min(max(reward, -options.reward_clip), options.reward_clip)
                total += weight * reward
                weight *= options.discount
                if unroll.terminated[at, b] or (options.life_loss_ends and unroll.life_lost[at, b]):
                    weight = 0.0
            best = int(np.argmax((q if options.double_q else target_q)[at, b]))
            total += weight * h_inverse(float(target_q[at, b, best]), epsilon)
            target = h(total, epsilon) if epsilon else total
            errors[t, b] = target - float(q[t, b, unroll.action[t, b]])
    return errors, ~unroll.first[1:]


def priorities(errors: Array, real: Array, eta: float) -> Array:
    size = np.abs(errors)
    wanted = [
        eta * size[:, b].max() + (1 - eta) * (size[real[:, b], b].mean() if real[:, b].any() else 0)
        for b in range(size.shape[1])
    ]
    return np.maximum(wanted, SMALLEST_PRIORITY)


CASES = {
    "table-8": R2d2Options(),
    "no-double-q": R2d2Options(double_q=False),
    "no-rescaling": R2d2Options(value_rescaling_epsilon=0.0, discount=0.9),
    "one-step": R2d2Options(n_steps=1, max_priority_weight=0.5),
    "windows-longer-than-rows": R2d2Options(n_steps=50, discount=0.8),
    "lives": R2d2Options(life_loss_ends=True, discount=0.9, n_steps=3),
    "clipped": R2d2Options(reward_clip=0.7, max_priority_weight=1.0),
    "asymmetric": R2d2Options(optimistic_asymmetric_clip=True),
    "dqn": DqnOptions(),
    "dqn-n3": DqnOptions(n_steps=3, double_q=True, reward_clip=1.0),
}


@pytest.mark.parametrize("trained", [R - 1, R - 4])
@pytest.mark.parametrize("case", CASES)
def test_loss_equals_a_walk_through_every_window(case: str, trained: int) -> None:
    """Sequences end, episodes end and are truncated and cut, anywhere."""
    options = CASES[case]
    for seed in range(4):
        unroll, (q, target_q) = random_unroll(seed), random_q(seed)
        weight = np.random.default_rng(seed).uniform(0.1, 1, B).astype(np.float32)
        loss, scalars, priority = q_loss(
            *(ops.convert_to_tensor(x) for x in (q, target_q)),
            tensors(unroll),
            trained,
            ops.convert_to_tensor(weight),
            options,
        )
        errors, real = reference(q, target_q, unroll, options)
        errors, real = errors[:trained], real[:trained]
        assert 0 < real.sum() < real.size
        wanted = (weight * 0.5 * (errors**2).sum(0)).mean()
        np.testing.assert_allclose(float(loss), wanted, rtol=1e-4)
        wanted = priorities(errors, real, options.max_priority_weight)
        np.testing.assert_allclose(ops.convert_to_numpy(priority), wanted, rtol=1e-4)
        for name, number in {
            "td_error_mean": np.abs(errors)[real].mean(),
            "td_error_max": np.abs(errors).max(),
            "unmasked": real.mean(),
            "importance_weight_min": weight.min(),
            "q_max": q[:trained].max(),
        }.items():
            np.testing.assert_allclose(float(scalars[name]), number, rtol=1e-4)


def gradient(backend: Backend, function: Any, given: list[Any]) -> list[Array]:
    """Of function(given), a number, for each array of `given`."""
    given = [ops.convert_to_tensor(x) for x in given]
    if backend.name == "jax":
        import jax

        result = jax.jit(jax.grad(function))(given)  # op by op it takes minutes
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(given)
            number = function(given)
        result = tape.gradient(number, given, unconnected_gradients="zero")
    return [ops.convert_to_numpy(x) for x in result]


@pytest.mark.parametrize("end", ["terminated", "truncated", "cut", "life_lost", "life_lost_asked"])
def test_ends_of_episodes(backend: Backend, end: str) -> None:
    """Row 2 is finished, row 3 the next episode's first; rewards are 1, γ = 1/2, n = 3, Q 0 but
    for the values that windows bootstrap from. The errors are read off the loss's gradient.
    """
    value = np.array([1.0, 2.0, 8.0, 3.0, 4.0, 16.0], np.float32)
    flags = {name: np.zeros((6, 1), bool) for name in ("terminated", "truncated", "life_lost")}
    if end != "cut":
        flags[end.removesuffix("_asked")][2] = True
    resets = not end.startswith("life_lost")
    first = (np.arange(6)[:, None] == 3) & resets
    zeros = np.zeros((6, 1), np.float32)
    unroll = Unroll(
        observation=zeros[..., None],
        previous_action=np.zeros((6, 1), np.int32),
        previous_reward=zeros,
        action=np.zeros((5, 1), np.int32),
        reward=zeros + 1,
        first=first,
        behaviour={},
        state=np.zeros((1, 0), np.float32),
        **flags,
    )
    q = np.zeros((6, 1, 2), np.float32)
    target_q = np.stack([np.full_like(value, -100), value], -1)[:, None]
    options = R2d2Options(
        discount=0.5,
        n_steps=3,
        value_rescaling_epsilon=0.0,
        double_q=False,
        life_loss_ends=end == "life_lost_asked",
    )
    last = 16.0
    if end == "life_lost":
        wanted = [1.75 + 3 / 8, 1.75 + 4 / 8, 1.75 + last / 8, 1.5 + last / 4, 1 + last / 2]
    elif end == "life_lost_asked":  # the life's own windows end, those after it go on
        wanted = [1.5, 1.0, 1.75 + last / 8, 1.5 + last / 4, 1 + last / 2]
    else:
        own = 0.0 if end == "terminated" else 8.0  # a truncated row bootstraps from itself
        wanted = [1.5 + own / 4, 1 + own / 2, 0.0, 1.5 + last / 4, 1 + last / 2]
    to_q, _ = gradient(
        backend,
        lambda x: q_loss(*x, tensors(unroll), 5, ops.ones((1,)), options)[0],
        [q, target_q],
    )
    np.testing.assert_allclose(-to_q[:-1, 0, 0], wanted, rtol=1e-6)


# In a process of its own: see test_ops_vtrace. In float64, since its inverse loses digits.
RLAX = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np, rlax
folder, *steps = sys.argv[1:]
x = {name: jax.numpy.asarray(array) for name, array in np.load(folder + "/given.npz").items()}
for n in steps:
    def one(q, a, target_q, best, r, d):
        return rlax.transformed_n_step_q_learning(
            q[:-1], a, target_q[1:], best[1:], r[1:], d[1:], int(n),
            tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR)
    errors = jax.vmap(one, in_axes=1, out_axes=1)(
        x["q"], x["action"], x["target_q"], x["best"], x["reward"], x["discount"])
    np.save(folder + "/wanted-" + n + ".npy", errors)
"""


def test_equals_rlax(backend: Backend, tmp_path: Path) -> None:
    """Episodes that end by their discount alone, as rlax has them; the sequence's end too."""
    if backend.name != "jax":
        pytest.skip("rlax needs JAX")
    unroll, (q, target_q) = random_unroll(3), random_q(3)
    unroll = unroll._replace(first=np.zeros((R, B), bool))
    given = {
        "q": q,
        "target_q": target_q,
        "reward": unroll.reward,
        "discount": np.where(unroll.terminated, 0, R2d2Options().discount),
    }
    assert unroll.terminated.any()
    np.savez(
        tmp_path / "given.npz",
        action=unroll.action,
        best=q.argmax(-1),
        **{name: array.astype(np.float64) for name, array in given.items()},
    )
    done = subprocess.run(
        [sys.executable, "-c", RLAX, tmp_path, "1", "5"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for n in (1, 5):
        options = R2d2Options(n_steps=n)
        errors = np.load(tmp_path / f"wanted-{n}.npy")
        loss, _, priority = q_loss(
            *(ops.convert_to_tensor(x) for x in (q, target_q)),
            tensors(unroll),
            R - 1,
            ops.ones((B,)),
            options,
        )
        np.testing.assert_allclose(float(loss), 0.5 * (errors**2).sum(0).mean(), rtol=1e-4)
        wanted = priorities(errors, np.ones_like(errors, bool), options.max_priority_weight)
        np.testing.assert_allclose(ops.convert_to_numpy(priority), wanted, rtol=1e-4)


def test_gradients_flow_only_where_they_should(backend: Backend) -> None:
    """Through Q of the chosen action of real trained transitions: -δ w / B. Not through targets."""
    unroll, (q, target_q) = random_unroll(7), random_q(7)
    weight = np.linspace(0.2, 1, B).astype(np.float32)
    options, trained = R2d2Options(), R - 3
    to_q, to_target = gradient(
        backend,
        lambda x: q_loss(*x, tensors(unroll), trained, ops.convert_to_tensor(weight), options)[0],
        [q, target_q],
    )
    errors, real = reference(q, target_q, unroll, options)
    wanted = np.zeros_like(q)
    t, b = np.indices((trained, B))
    wanted[t, b, unroll.action[:trained]] = (-errors * real * weight / B)[:trained]
    np.testing.assert_allclose(to_q, wanted, rtol=1e-3, atol=1e-5)
    assert not to_q[:-1][~real].any(), "masked"
    assert not to_q[trained:].any(), "lookahead"
    assert not to_target.any()


def make_agent(units: int = 8, **options: Any) -> R2d2Agent:
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, units)
    if not units:
        return DqnAgent(DqnOptions(dueling_units=16, **options), body, A)
    return R2d2Agent(R2d2Options(dueling_units=16, **options), body, A)


def params_of(agent: R2d2Agent, scale: float = 1.0) -> list[Any]:
    return [ops.convert_to_tensor(v.value) * scale for v in agent.model.trainable_variables]


def test_burn_in_gives_states_and_no_gradients(backend: Backend) -> None:
    """Its rows move the state, so the loss, but nothing flows back through them."""
    agent = make_agent(burn_in=4)
    unroll = random_unroll(1, state=16)
    unroll = unroll._replace(first=np.zeros((R, B), bool))  # or a first row forgets the burn-in
    observation, reward = unroll.observation, unroll.previous_reward
    target = params_of(agent, 0.9)

    def loss(x: list[Any]) -> Any:
        given = tensors(unroll)._replace(observation=x[0], state=x[1], previous_reward=x[2])
        return agent.loss(params_of(agent), target, given, ops.ones((B,)))[0]

    to_observation, to_state, to_reward = gradient(
        backend, loss, [observation, unroll.state, reward]
    )
    for array in (to_observation, to_reward):
        assert not array[:4].any()
        assert array[4:-1].any(axis=tuple(range(1, array.ndim))).all()
    assert not to_state.any()
    # But the numbers depend on them.
    given = [ops.convert_to_tensor(x) for x in (observation, unroll.state, reward)]
    before = float(loss(given))
    changed = observation.copy()
    changed[0] += 1
    assert abs(float(loss([ops.convert_to_tensor(changed), *given[1:]])) - before) > 1e-5 * before
    assert abs(float(loss([given[0], given[1] + 1.0, given[2]])) - before) > 1e-5 * before


@pytest.mark.parametrize("burn_in", [0, 4])
def test_the_agents_loss_is_that_of_the_rows_after_the_burn_in(burn_in: int) -> None:
    """Q from the stored state on, over all rows at once; the target network's by its own."""
    agent = make_agent(burn_in=burn_in, n_steps=3)
    unroll = random_unroll(2, state=16)
    params, target = params_of(agent), params_of(agent, 0.7)
    rows = [
        getattr(unroll, name)
        for name in ("observation", "previous_action", "previous_reward", "first", "state")
    ]
    q, target_q = (
        ops.convert_to_numpy(
            agent.model.stateless_call(p, [], *(ops.convert_to_tensor(x) for x in rows))[0][0]
        )
        for p in (params, target)
    )
    weight = np.linspace(0.1, 1, B).astype(np.float32)
    loss, _, priority = agent.loss(params, target, tensors(unroll), ops.convert_to_tensor(weight))
    rest = unroll._replace(**{name: getattr(unroll, name)[burn_in:] for name in (*TIMED, "action")})
    errors, real = reference(q[burn_in:], target_q[burn_in:], rest, agent.options)
    np.testing.assert_allclose(float(loss), (weight * 0.5 * (errors**2).sum(0)).mean(), rtol=1e-3)
    wanted = priorities(errors, real, 0.9)
    np.testing.assert_allclose(ops.convert_to_numpy(priority), wanted, rtol=1e-3)


def act(agent: R2d2Agent, unroll: Unroll, t: int, state: Any, seed: int = 0) -> ActOutputs:
    noise = np.random.default_rng([t, seed]).random((B, 2)).astype(np.float32)
    rows = (
        unroll.observation[t],
        unroll.previous_action[t],
        unroll.previous_reward[t],
        unroll.first[t],
        np.arange(B, dtype=np.int32),
        noise,
    )
    return agent.act(
        params_of(agent),
        ActInputs(*(ops.convert_to_tensor(x) for x in rows)),
        ops.convert_to_tensor(state),
        greedy=False,
    )


@pytest.mark.parametrize(
    ("units", "options"),
    [
        (8, {"burn_in": 4}),
        (8, {"burn_in": 0, "life_loss_ends": True, "reward_clip": 0.5}),
        (8, {"burn_in": 3, "double_q": False, "value_rescaling_epsilon": 0.0}),
        (0, {}),
        (0, {"n_steps": 3}),
        (0, {"n_steps": 9, "double_q": True}),
    ],
)
def test_first_priorities_are_those_of_the_loss(units: int, options: dict[str, Any]) -> None:
    """When both networks are the one that acted, over any ends of episodes."""
    agent = make_agent(units, epsilon_levels=2, **options)
    rows = 2 + agent.lookahead if isinstance(agent, DqnAgent) else R
    unroll = random_unroll(5, rows, agent.body.state_size)
    state: Any = unroll.state
    outputs = []
    for t in range(rows):
        outputs.append(act(agent, unroll, t, state))
        state = outputs[-1].state
        if t < rows - 1:  # what was chosen is the next row's previous action
            action = ops.convert_to_numpy(outputs[-1].action)
            unroll.action[t] = action
            unroll.previous_action[t + 1] = np.where(unroll.first[t + 1], -1, action)
    trained = rows - 1 - agent.burn_in - agent.lookahead
    window = SequenceWindow(
        trained=trained,
        action=np.stack([ops.convert_to_numpy(o.action) for o in outputs]),
        reward=unroll.reward,
        terminated=unroll.terminated,
        life_lost=unroll.life_lost,
        first=unroll.first,
        behaviour={
            name: np.stack([ops.convert_to_numpy(o.behaviour[name]) for o in outputs])
            for name in agent.behaviour
        },
    )
    got = agent.initial_priority(window)
    assert (got.dtype, got.shape) == (np.float32, (B,))
    params = params_of(agent)
    _, _, wanted = agent.loss(params, params, tensors(unroll), ops.ones((B,)))
    np.testing.assert_allclose(got, ops.convert_to_numpy(wanted), rtol=1e-3, atol=1e-5)
    assert (got > 0.01).any()


def test_a_sequence_without_a_real_transition_keeps_a_priority() -> None:
    unroll, (q, target_q) = random_unroll(8), random_q(8)
    unroll = unroll._replace(first=np.ones((R, B), bool))
    loss, _, priority = q_loss(
        ops.convert_to_tensor(q),
        ops.convert_to_tensor(target_q),
        tensors(unroll),
        R - 1,
        ops.ones((B,)),
        R2d2Options(),
    )
    assert float(loss) == 0
    np.testing.assert_allclose(ops.convert_to_numpy(priority), SMALLEST_PRIORITY)


@pytest.mark.parametrize("beta", [0.0, 0.6, 1.0])
def test_importance_weights(beta: float) -> None:
    """(N P)^-β over the largest, at the probabilities of a full replay."""
    n = 100_000
    probability = np.random.default_rng(0).uniform(0.01, 5, B) / n
    wanted = (n * probability) ** -beta
    got = importance_weights(ops.convert_to_tensor(probability.astype(np.float32)), beta)
    np.testing.assert_allclose(ops.convert_to_numpy(got), wanted / wanted.max(), rtol=1e-5)
    assert float(ops.max(got)) == 1


@pytest.mark.parametrize("levels", [1, 2, 8, 256])
def test_exploration_by_slot(levels: int) -> None:
    """0.4^(1 + 7i / (N - 1)), i = slot mod N; actors may come and go."""
    slots = np.arange(2 * levels + 3, dtype=np.int32)
    wanted = [0.4 ** (1 + 7 * (s % levels) / (levels - 1 or 1)) for s in slots]
    table = exploration_table(levels)
    got = table[slots % len(table)]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert got[0] == pytest.approx(0.4)
    if levels > 1:
        assert got[levels - 1] == pytest.approx(0.4**8)
        assert got[levels] == pytest.approx(0.4)


@pytest.mark.parametrize("environments", [2, 3, 8, 61, 64, 610])
def test_levels_follow_the_environments(environments: int) -> None:
    """However few there are, both ends are held, and no stretch of levels is left out."""
    slots = np.arange(environments, dtype=np.int32)
    assert exploration_range(slots, 0) == pytest.approx((0.4**8, 0.4))
    level = np.sort((np.log(exploration_table(0)[slots]) / np.log(0.4) - 1) / 7)
    gap = 1 / (environments - 1)
    assert np.diff(level).max() < 2 * gap + 1e-6
    assert np.diff(level).min() > gap / 2 - 1e-6


@pytest.mark.parametrize(("greedy", "epsilons"), [(False, [0.4, 0.4**8]), (True, [0.25, 0.25])])
def test_actions_are_as_random_as_they_should_be(greedy: bool, epsilons: list[float]) -> None:
    """Evenly spread numbers: an action other than the best has ε / A, the best the rest. Of
    evaluations, ε is `evaluation_epsilon` in every slot.
    """
    agent = make_agent(0, epsilon_levels=2, evaluation_epsilon=0.25)
    side = 60
    grid = (np.arange(side) + 0.5) / side
    noise = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2).astype(np.float32)
    n = len(noise)
    observation = np.tile(np.linspace(-1, 1, 5).astype(np.float32), (n, 1))
    for level, epsilon in enumerate(epsilons):
        out = agent.act(
            params_of(agent),
            ActInputs(
                *(
                    ops.convert_to_tensor(x)
                    for x in (
                        observation,
                        np.zeros(n, np.int32),
                        np.zeros(n, np.float32),
                        np.zeros(n, bool),
                        np.full(n, level + 2, np.int32),
                        noise,
                    )
                )
            ),
            ops.zeros((n, 0)),
            greedy,
        )
        action = ops.convert_to_numpy(out.action)
        assert action.dtype == np.int32
        share = np.bincount(action, minlength=A) / n
        best = int(share.argmax())
        wanted = np.full(A, epsilon / A)
        wanted[best] += 1 - epsilon
        np.testing.assert_allclose(share, wanted, atol=1 / side)
        chosen, top = (ops.convert_to_numpy(out.behaviour[k]) for k in ("chosen", "best"))
        np.testing.assert_allclose(chosen[action == best], top[action == best], rtol=1e-6)
        assert (chosen[action != best] < top[action != best]).all()


def test_numbers_at_the_end_of_the_interval_name_an_action() -> None:
    """A uniform number may become 1 when it is rounded to float32."""
    agent = make_agent(0, epsilon_levels=1, evaluation_epsilon=1.0)
    noise = np.array([[0, 1], [0, 0]], np.float32)
    rows = (
        np.zeros((2, 5), np.float32),
        np.zeros(2, np.int32),
        np.zeros(2, np.float32),
        np.zeros(2, bool),
        np.zeros(2, np.int32),
        noise,
    )
    inputs = ActInputs(*(ops.convert_to_tensor(x) for x in rows))
    out = agent.act(params_of(agent), inputs, ops.zeros((2, 0)), True)
    assert ops.convert_to_numpy(out.action).tolist() == [A - 1, 0]


def test_dueling_is_equation_9() -> None:
    heads = Dueling(actions=3, units=6)
    x = np.random.default_rng(0).normal(size=(4, 2, 5)).astype(np.float32)
    got = ops.convert_to_numpy(heads(ops.convert_to_tensor(x)))

    def layer(of: Any, given: Array) -> Array:
        kernel, bias = (ops.convert_to_numpy(w) for w in of.get_weights())
        result: Array = given @ kernel + bias
        return result

    value = layer(heads.value, np.maximum(layer(heads.value_hidden, x), 0))
    advantage = layer(heads.advantage, np.maximum(layer(heads.advantage_hidden, x), 0))
    wanted = value + advantage - advantage.mean(-1, keepdims=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.mean(-1), value[..., 0], rtol=1e-4, atol=1e-5)


def test_the_network_of_the_paper() -> None:
    """Section A.3.1, from the experiment that ships: layer by layer, and parameters by hand."""
    experiment = load_experiment(ATARI)
    spec = EnvironmentSpec("atari:Pong", ArraySpec((84, 84), "uint8"), 18, 4)
    agent: Any = build_agent(experiment, spec)
    shapes = [tuple(v.shape) for v in agent.model.trainable_variables]
    features = 7 * 7 * 64  # 84 -> 20 -> 9 -> 7, valid padding
    lstm_inputs = 512 + 18 + 1  # features, one-hot previous action, previous reward
    torso = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (features, 512)]
    lstm, heads = [(lstm_inputs, 2048), (512, 2048)], [(512, 512), (512, 1), (512, 512), (512, 18)]
    assert sorted(s for s in shapes if len(s) > 1) == sorted(torso + lstm + heads)
    assert agent.model.count_params() == (
        (8 * 8 * 4 + 1) * 32
        + (4 * 4 * 32 + 1) * 64
        + (3 * 3 * 64 + 1) * 64
        + (features + 1) * 512
        + (lstm_inputs + 512 + 1) * 4 * 512
        + 2 * (512 + 1) * 512
        + (512 + 1) * (1 + 18)
    )
    assert agent.body.state_size == 1024


# Table 8 of the SEED paper. Sequences of 120 are 80 trained steps after 40 of burn-in.
TABLE_8 = {
    "learner.batch_size": 64,
    "learner.unroll_length": 120 - 40,
    "r2d2.burn_in": 40,
    "r2d2.discount": 0.997,
    "r2d2.n_steps": 5,
    "r2d2.double_q": True,
    "r2d2.value_rescaling_epsilon": 1e-3,
    "r2d2.target_update_period": 2_500,
    "r2d2.max_priority_weight": 0.9,
    "learner.inference.batch_envs": 64,
    "r2d2.evaluation_epsilon": 1e-3,
    "r2d2.reward_clip": 0,
    "r2d2.life_loss_ends": False,
    "r2d2.dueling_units": 512,
    "learner.replay.capacity": 100_000,
    "learner.replay.min_size": 5_000,
    "learner.replay.ratio": 0.75,
    "learner.replay.priority_exponent": 0.9,
    "learner.replay.importance_sampling_exponent": 0.6,
    "learner.optimizer.name": "adam",
    "learner.optimizer.learning_rate": 1e-4,
    "learner.optimizer.epsilon": 1e-3,
    "learner.optimizer.max_gradient_norm": 80,
    "learner.frame_stack": 4,
    "learner.network": "nature",
    "learner.lstm_units": 512,
    "learner.initial_weights": "glorot",
    "environment.atari.preprocessing": "exact",
    "environment.atari.full_action_space": True,
    "environment.atari.frame_skip": 4,
    "environment.atari.sticky_action_probability": 0,
}


def test_exploration_is_table_8() -> None:
    """The i-th of N environments has 0.4^(1 + 7i / (N - 1)); the file has N of its own."""
    experiment = load_experiment(ATARI)
    n = experiment.actor.total_envs
    wanted = [0.4 ** (1 + 7 * i / (n - 1)) for i in range(n)]
    np.testing.assert_allclose(exploration_table(experiment.r2d2.epsilon_levels), wanted, rtol=1e-5)
    # Two groups of each actor alternate, so that half of the environments fill a batch.
    assert 2 * experiment.learner.inference.batch_envs == n


@pytest.mark.parametrize("key", TABLE_8)
def test_the_experiment_that_ships_is_table_8(key: str) -> None:
    value: Any = load_experiment(ATARI)
    written: Any = yaml.safe_load(ATARI.read_text())
    for part in key.split("."):
        value = getattr(value, part)
        written = written.get(part, {}) if isinstance(written, dict) else {}
    assert value == TABLE_8[key]
    # In the file too, where it is the agent's: a default may change, the paper does not.
    assert written in ({}, value)
