"""The sum tree against a flat list of weights."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.replay.sum_tree import SumTree


def tree_of(weights: list[float]) -> SumTree:
    tree = SumTree(len(weights))
    tree.set(np.arange(len(weights)), np.array(weights))
    return tree


def flat_draw(weights: NDArray[np.float64], uniform: float) -> int:
    """The slow way: walk along the items until the mass is used up."""
    mass = uniform * weights.sum()
    for item, weight in enumerate(weights):
        if mass < weight:
            return item
        mass -= weight
    return int(np.flatnonzero(weights)[-1])


def test_a_tree_that_can_be_read() -> None:
    #          10
    #        /    \
    #       3      7
    #      / \    / \
    #     1   2  3   4
    tree = tree_of([1, 2, 3, 4])
    assert tree.total == 10
    np.testing.assert_array_equal(tree._sums[1:], [10, 3, 7, 1, 2, 3, 4])
    at = np.array([0.0, 0.05, 0.1, 0.29, 0.3, 0.59, 0.6, 0.999])
    np.testing.assert_array_equal(tree.draw(at), [0, 0, 1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 100, 1000])
def test_draws_are_those_of_the_flat_list(capacity: int) -> None:
    random = np.random.default_rng(capacity)
    weights = random.integers(0, 5, capacity).astype(np.float64)  # sums are exact; zeros are there
    weights[random.integers(capacity)] = 3
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), weights)
    uniform = random.random(300)
    drawn = tree.draw(uniform)
    assert drawn.tolist() == [flat_draw(weights, u) for u in uniform]
    assert (weights[drawn] > 0).all()


def test_batched_updates_are_those_one_by_one() -> None:
    random = np.random.default_rng(0)
    batched, single = SumTree(50), SumTree(50)
    for _ in range(40):
        items, weights = random.integers(0, 50, 20), random.random(20)  # some items twice
        batched.set(items, weights)
        for item, weight in zip(items, weights, strict=True):
            single.set(np.array([item]), np.array([weight]))
        np.testing.assert_array_equal(batched._sums, single._sums)


def test_the_distribution_is_that_of_the_weights() -> None:
    """Chi squared with 19 degrees of freedom is above 43.8 once in a thousand times."""
    random = np.random.default_rng(1)
    weights = random.random(20) ** 0.9
    tree = tree_of(weights.tolist())
    draws = 100_000
    seen = np.bincount(tree.draw(random.random(draws)), minlength=20)

    def chi_squared(of: NDArray[np.float64]) -> float:
        expected = draws * of / of.sum()
        return float(((seen - expected) ** 2 / expected).sum())

    assert chi_squared(weights) < 43.8
    assert chi_squared(weights ** (0.6 / 0.9)) > 43.8, "another exponent would be noticed"


def test_a_million_items_keep_their_widths() -> None:
    """In float32 thousands of a million items would have none."""
    n = 1_000_000
    tree = SumTree(n)
    tree.set(np.arange(n), np.full(n, 0.1))
    np.testing.assert_array_equal(tree.draw((np.arange(n) + 0.5) / n), np.arange(n))


def test_many_updates_leave_no_drift() -> None:
    random = np.random.default_rng(2)
    tree = SumTree(64)
    for _ in range(2000):
        tree.set(random.integers(0, 64, 16), random.random(16) * 10.0 ** random.integers(-9, 9, 16))
    tree.set(np.arange(64), np.zeros(64))
    assert tree.total == 0.0


def test_the_end_of_the_interval_is_never_an_empty_item() -> None:
    tree = tree_of([0.1, 0.2, 0.3, 0.0, 0.0])
    assert tree.draw(np.array([np.nextafter(1.0, 0.0), 1.0])).tolist() == [2, 2]


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sum of all weights is 0"):
        SumTree(4).draw(np.array([0.5]))
    with pytest.raises(ValueError, match=r"at least 1"):
        SumTree(0)


@pytest.mark.parametrize("how", ["neighbours", "spread", "many"])
def test_every_node_is_the_sum_of_its_children(how: str) -> None:
    """Neighbours are added by ranges, spread items by index, many of them each node once."""
    random, capacity = np.random.default_rng(0), 20_000
    tree, expected = SumTree(capacity), np.zeros(capacity)
    for turn in range(20):
        if how == "neighbours":
            items = (turn * 1111 + random.permutation(64)) % capacity
        else:
            items = random.integers(0, capacity, 30 if how == "spread" else 3000)
        weights = random.integers(0, 100, len(items)).astype(np.float64)  # sums are exact
        tree.set(items, weights)
        for item, weight in zip(items.tolist(), weights.tolist(), strict=True):
            expected[item] = weight
    np.testing.assert_array_equal(tree.weights(np.arange(capacity)), expected)
    sums = tree._sums
    for node in range(1, tree._leaves):
        assert sums[node] == sums[2 * node] + sums[2 * node + 1]
    tree.set(np.empty(0, np.int64), np.empty(0))
    assert tree.total == expected.sum()
