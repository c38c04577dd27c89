"""Graphs of learners and their mixing weights (Assran et al. 2019, section 2).

A graph is a mixing matrix P [n, n] float64: row i holds the weights with which learner i mixes, and
`P[i, j]` is the weight of learner j's parameters. `P[i, j] > 0` is an edge from j to i.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.config.gossip import Gossip, Graph, Weights
from seedbed.runtime.exit_codes import ConfigError

Matrix = NDArray[np.float64]

# A row of written weights may miss 1 by so much.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Topology:
    """Graphs that take turns, one a local iteration.

    Attributes:
        graphs: Mixing matrices [n, n].
        window: Connectivity window B: the union of any B graphs in a row leads from every learner
            to every other. None if no window does; then the learners' distance is unbounded.
    """

    graphs: tuple[Matrix, ...]
    window: int | None

    def graph(self, iteration: int) -> Matrix:
        """Return the mixing matrix of a local iteration.

        Args:
            iteration: Local iteration, from 0.
        """
        return self.graphs[iteration % len(self.graphs)]

    def in_peers(self, rank: int, iteration: int) -> dict[int, float]:
        """Return the ranks whose messages a learner mixes, and their weights.

        The learner's own weight is what they leave of 1.

        Args:
            rank: Rank of the learner.
            iteration: Its local iteration.
        """
        row = self.graph(iteration)[rank]
        return {int(j): float(row[j]) for j in np.flatnonzero(row) if j != rank}

    def out_peers(self, rank: int, iteration: int) -> list[int]:
        """Return the ranks that a learner sends to.

        Args:
            rank: Rank of the learner.
            iteration: Its local iteration.
        """
        return [int(i) for i in np.flatnonzero(self.graph(iteration)[:, rank]) if i != rank]

    def edges(self) -> list[set[tuple[int, int]]]:
        """Return the edges (from, to) of each graph, without loops."""
        return [
            {(int(j), int(i)) for i, j in np.argwhere(graph) if i != j} for graph in self.graphs
        ]

    def restricted_to(self, alive: frozenset[int]) -> "Topology":
        """Return the graphs closed around the learners that are not alive.

        A learner that sent to an absent one sends to the absent one's out-peers instead. A ring
        stays a ring, and the weights of a matrix with uniform rows stay uniform.
        """
        absent = sorted(set(range(len(self.graphs[0]))) - alive)
        graphs = tuple(_censored(graph, absent) for graph in self.graphs)
        return Topology(graphs, smallest_window(graphs, sorted(alive)))


def make_topology(settings: Gossip) -> Topology:
    """Build the topology of an experiment.

    Raises:
        SeedbedError: CONFIG; a graph does not fit, is not row-stochastic, or the graphs are not
            jointly strongly connected.
    """
    graphs = tuple(
        _matrix(graph, settings.replicas, f"gossip.graphs[{i}]")
        for i, graph in enumerate(settings.graphs)
    )
    learners = range(settings.replicas)
    smallest = smallest_window(graphs, learners)
    if smallest is None:
        source, target = _unreached(np.maximum.reduce(graphs), learners) or (0, 0)
        raise ConfigError(
            f"gossip.graphs: nothing that learner {source} sends ever reaches learner {target}, "
            f"in all {len(graphs)} graphs together: add edges until they are strongly connected"
        )
    window = settings.connectivity_window
    for first in range(len(graphs) if 0 < window < smallest else 0):
        if unreached := _unreached(_union(graphs, first, window), learners):
            raise ConfigError(
                f"gossip.connectivity_window {window}: in the {window} graphs from "
                f"gossip.graphs[{first}] on nothing that learner {unreached[0]} sends reaches "
                f"learner {unreached[1]}; {smallest} in a row are strongly connected: set it to "
                f"{smallest}, or to 0"
            )
    return Topology(graphs, window or smallest)


def smallest_window(graphs: Sequence[Matrix], nodes: Sequence[int]) -> int | None:
    """Return the smallest B such that any B graphs in a row are jointly strongly connected.

    Args:
        graphs: Mixing matrices [n, n], which take turns.
        nodes: Ranks that are to be connected.

    Returns:
        B, or None if all graphs together do not connect the nodes.
    """
    for size in range(1, len(graphs) + 1):
        if not any(_unreached(_union(graphs, k, size), nodes) for k in range(len(graphs))):
            return size
    return None


def _union(graphs: Sequence[Matrix], first: int, size: int) -> Matrix:
    matrices = [graphs[(first + k) % len(graphs)] for k in range(size)]
    union: Matrix = np.maximum.reduce(matrices)
    return union


def _unreached(matrix: Matrix, nodes: Sequence[int]) -> tuple[int, int] | None:
    """Return a learner and one that its messages never reach; None if all reach all."""
    reached = (matrix > 0) | np.eye(len(matrix), dtype=bool)
    for _ in range(len(matrix).bit_length()):
        reached = reached @ reached  # paths of twice the length
    pairs = itertools.permutations(nodes, 2)
    return next((pair for pair in pairs if not reached[pair[::-1]]), None)


def _matrix(graph: Graph, count: int, where: str) -> Matrix:
    if isinstance(graph, Weights):
        return _checked(graph, count, where)
    adjacency = np.eye(count, dtype=bool)
    if isinstance(graph, str):
        learners = np.arange(count)
        powers = [2**k for k in range((count - 1).bit_length())]  # those below count
        for step in {"ring": [1], "exponential": powers, "complete": range(count)}[graph]:
            adjacency[(learners + step) % count, learners] = True
        return _normalized(adjacency)
    for source, target in graph:
        if not (source < count and target < count) or source == target:
            raise ConfigError(
                f"{where}: the edge [{source}, {target}] is none between two of the "
                f"{count} learners 0 to {count - 1}"
            )
        adjacency[target, source] = True
    return _normalized(adjacency)


def _normalized(rows: NDArray[Any]) -> Matrix:
    """Divide each row by its sum.

    A row of an adjacency matrix weighs a learner's own parameters like each message (Algorithm 1,
    line 7).
    """
    matrix: Matrix = rows / rows.sum(axis=1, keepdims=True)
    return matrix


def _checked(graph: Weights, count: int, where: str) -> Matrix:
    rows = graph.weights
    if len(rows) != count or any(len(row) != count for row in rows):
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows})}"
        raise ConfigError(
            f"{where}: weights has {shape} numbers, and there are {count} learners: "
            f"{count} rows of {count}"
        )
    matrix = np.array(rows, np.float64)
    for i, total in enumerate(matrix.sum(axis=1)):
        if abs(total - 1) > _ROUNDING:
            raise ConfigError(
                f"{where}: row {i} sums to {total:.6g}, and must to 1: learner {i}'s parameters "
                "would grow or shrink with every mixing"
            )
        if not matrix[i, i]:
            raise ConfigError(
                f"{where}: row {i} has weight 0 in column {i}: learner {i} would throw away what "
                "it has learned"
            )
    return _normalized(matrix)


def _censored(graph: Matrix, absent: Sequence[int]) -> Matrix:
    """Return a graph without the absent learners: the censored Markov chain.

    What would pass through an absent learner goes on at once, in the proportions in which it would
    have come out.
    """
    uniform = np.allclose(graph, _normalized(graph > 0))
    matrix = graph.copy()
    for node in absent:
        own = matrix[node, node]
        if own < 1:
            through = matrix[node] / (1 - own)
            through[node] = 0
            matrix += np.outer(matrix[:, node], through)
        else:
            # The node has no in-peers, so each learner that mixed its messages keeps their weight.
            matrix[np.diag_indices_from(matrix)] += matrix[:, node]
        matrix[:, node] = 0
        matrix[node] = 0
        matrix[node, node] = 1
    return _normalized(matrix > 0) if uniform else matrix
