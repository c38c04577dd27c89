"""How the agents of Q-learning explore: a level for each slot, and random actions."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops

from seedbed.agents.exploration import exploration_range, exploration_table
from seedbed.agents.protocol import ActInputs
from tests.support.q_learning import A, make_agent, params_of

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]


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
