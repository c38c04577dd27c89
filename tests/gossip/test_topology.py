"""Graphs: their weights, the invalid ones, and how they close around absent learners."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from seedbed.config.gossip import Gossip
from seedbed.gossip.topology import Topology, make_topology
from seedbed.runtime.exit_codes import SeedbedError


def topology(count: int, *graphs: Any, window: int = 0) -> Topology:
    return make_topology(
        Gossip(replicas=count, graphs=list(graphs or ("ring",)), connectivity_window=window)
    )


def test_a_ring_sends_to_the_next_one() -> None:
    ring = topology(4)
    assert [ring.in_peers(i, 7) for i in range(4)] == [{3: 0.5}, {0: 0.5}, {1: 0.5}, {2: 0.5}]
    assert [ring.out_peers(i, 7) for i in range(4)] == [[1], [2], [3], [0]]
    assert ring.window == 1


def test_exponential_and_complete() -> None:
    assert topology(6, "exponential").out_peers(5, 0) == [0, 1, 3]
    assert topology(6, "exponential").in_peers(0, 0) == {2: 0.25, 4: 0.25, 5: 0.25}
    assert topology(3, "complete").in_peers(1, 0) == {
        0: pytest.approx(1 / 3),
        2: pytest.approx(1 / 3),
    }
    assert topology(1, "complete").in_peers(0, 0) == {}


def test_edges_go_from_sender_to_receiver() -> None:
    weights = {"weights": [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]}
    assert topology(3, "ring", weights).edges() == [{(0, 1), (1, 2), (2, 0)}, {(1, 0)}]


def test_several_are_taken_in_turn() -> None:
    turns = topology(3, [[0, 1], [1, 0]], [[1, 2], [2, 1]])
    assert [turns.in_peers(1, t) for t in range(4)] == [{0: 0.5}, {2: 0.5}, {0: 0.5}, {2: 0.5}]
    assert turns.window == 2, "neither alone connects all"


def reaches(graphs: tuple[np.ndarray[Any, Any], ...], nodes: tuple[int, ...]) -> bool:
    """Slow reference: does the union lead from every node to every other?"""
    union = np.maximum.reduce(graphs) > 0
    paths = np.linalg.matrix_power(union.astype(float) + np.eye(len(union)), len(union)) > 0
    return all(paths[i, j] for i, j in itertools.product(nodes, nodes))


def test_windows_of_random_sequences() -> None:
    """The window found is the smallest, by a reference that looks at every window's powers."""
    draw = np.random.default_rng(5)
    found = dict.fromkeys(("one", "more", "never"), 0)
    for _ in range(200):
        n, length = int(draw.integers(2, 6)), int(draw.integers(1, 4))
        edges = [
            [
                [int(a), int(b)]
                for a, b in itertools.permutations(range(n), 2)
                if draw.random() < 0.4
            ]
            for _ in range(length)
        ]
        learners = tuple(range(n))
        matrices = tuple(np.eye(n) for _ in edges)
        for matrix, graph in zip(matrices, edges, strict=True):
            for a, b in graph:
                matrix[b, a] = 1
        if not reaches(matrices, learners):
            with pytest.raises(SeedbedError, match="ever reaches learner"):
                topology(n, *edges)
            found["never"] += 1
            continue
        made = topology(n, *edges)
        windows = [
            size
            for size in range(1, length + 1)
            if all(
                reaches(tuple(made.graph(k + j) for j in range(size)), learners)
                for k in range(length)
            )
        ]
        assert made.window == windows[0]
        found["one" if made.window == 1 else "more"] += 1
    assert min(found.values()) > 5, found


@pytest.mark.parametrize(
    ("count", "graphs", "window", "words"),
    [
        (3, [[[0, 1], [1, 2]]], 0, "nothing that learner 1 sends ever reaches learner 0"),
        (
            3,
            [[[0, 1], [1, 0]], [[1, 2], [2, 1]]],
            1,
            "gossip.connectivity_window 1: in the 1 graphs from "
            "gossip.graphs[0] on nothing that learner 0 sends reaches learner 2; 2 in a row are",
        ),
        (3, [[[0, 3]]], 0, "gossip.graphs[0]: the edge [0, 3] is none between two of the 3"),
        (3, [[[1, 1]]], 0, "the edge [1, 1] is none"),
        (2, [{"weights": [[0.5, 0.4], [0.5, 0.5]]}], 0, "row 0 sums to 0.9, and must to 1"),
        (2, [{"weights": [[1.0]]}], 0, "weights has 1 rows of [1] numbers, and there are 2"),
        (
            2,
            ["ring", {"weights": [[0.0, 1.0], [0.5, 0.5]]}],
            0,
            "gossip.graphs[1]: row 0 has weight 0 in column 0: learner 0 would throw away",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    count: int, graphs: list[Any], window: int, words: str
) -> None:
    with pytest.raises(SeedbedError) as refused:
        topology(count, *graphs, window=window)
    assert words in str(refused.value)


def test_a_given_window_may_be_larger_than_the_smallest() -> None:
    assert topology(3, window=4).window == 4


def test_a_ring_stays_a_ring() -> None:
    ring = topology(5)
    for size in range(1, 5):
        for alive in itertools.combinations(range(5), size):
            closed = ring.restricted_to(frozenset(alive))
            for place, rank in enumerate(alive):
                before = alive[place - 1]
                assert closed.in_peers(rank, 0) == ({before: 0.5} if size > 1 else {})
            assert closed.window == 1
    assert ring.restricted_to(frozenset(range(5))).in_peers(0, 0) == ring.in_peers(0, 0)


def test_weights_go_where_they_would_have_gone() -> None:
    """Against a random walk that is seen only while it is at a learner that is alive."""
    draw = np.random.default_rng(1)
    weights = draw.dirichlet(np.ones(5), size=5)
    made = topology(5, {"weights": weights.tolist()})
    closed = made.restricted_to(frozenset({0, 2, 4})).graph(0)
    alive, absent = [0, 2, 4], [1, 3]
    p = made.graph(0)
    walk, at = p.copy(), p[:, absent]
    for _ in range(400):  # at an absent learner the walk goes on
        step = at @ p[absent]
        walk = walk + step
        walk[:, absent] -= at
        at = walk[:, absent].copy()
    np.testing.assert_allclose(closed[np.ix_(alive, alive)], walk[np.ix_(alive, alive)], atol=1e-9)
    np.testing.assert_allclose(closed[alive].sum(axis=1), 1)


def test_graphs_that_cannot_close_are_disconnected() -> None:
    """Learner 1 is between 0 and 2 in time, not in any one graph: without it they part."""
    turns = topology(3, [[0, 1], [1, 0]], [[1, 2], [2, 1]])
    assert turns.restricted_to(frozenset({0, 2})).window is None
    assert turns.restricted_to(frozenset({0, 1})).window is not None
