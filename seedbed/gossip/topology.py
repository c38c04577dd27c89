"""Who sends to whom, and how much everybody takes (Assran et al. 2019, section 2).

A graph is its mixing matrix P [n, n] float64: row i is how learner i mixes, `P[i, j]` the weight of
learner j's parameters. `P[i, j] > 0` is an edge from j to i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.config.gossip import Gossip, Graph, Weights
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

Matrix = NDArray[np.float64]

_ROUNDING = 1e-6  # by which a row that people wrote may miss 1


@dataclass(frozen=True, eq=False)
class Topology:
    """Graphs that are taken in turn, one a local iteration.

    Attributes:
        graphs: mixing matrices [n, n].
        window: B: the union of any B graphs in a row leads from every learner to every other.
            None where none does: then nothing bounds how far the learners drift apart.
    """

    graphs: tuple[Matrix, ...]
    window: int | None

    @property
    def learners(self) -> int:
        """n, the dead ones too."""
        return len(self.graphs[0])

    def graph(self, iteration: int) -> Matrix:
        """The one of a local iteration."""
        return self.graphs[iteration % len(self.graphs)]

    def in_peers(self, rank: int, iteration: int) -> dict[int, float]:
        """Whose messages `rank` mixes, and their weights; its own weight is the rest."""
        row = self.graph(iteration)[rank]
        return {int(j): float(row[j]) for j in np.flatnonzero(row) if j != rank}

    def out_peers(self, rank: int, iteration: int) -> list[int]:
        """To whom `rank` sends."""
        column = self.graph(iteration)[:, rank]
        return [int(i) for i in np.flatnonzero(column) if i != rank]

    def edges(self) -> list[set[tuple[int, int]]]:
        """(from, to) of each of the graphs, without loops."""
        return [
            {(int(j), int(i)) for i, j in np.argwhere(graph) if i != j} for graph in self.graphs
        ]

    def among(self, alive: frozenset[int]) -> Topology:
        """Closed around those that are not alive: whoever sent to a dead one sends to those that
        it sent to. A ring stays a ring. Weights of a matrix with uniform rows stay uniform.
        """
        dead = sorted(set(range(self.learners)) - alive)
        graphs = tuple(_without(graph, dead) for graph in self.graphs)
        return Topology(graphs, smallest_window(graphs, sorted(alive)))


def make_topology(settings: Gossip) -> Topology:
    """The topology of an experiment.

    Raises:
        SeedbedError: CONFIG: a graph does not fit, is not row-stochastic, or they are not jointly
            strongly connected, with the reason.
    """
    graphs = tuple(
        _matrix(graph, settings.replicas, f"gossip.graphs[{i}]")
        for i, graph in enumerate(settings.graphs)
    )
    everybody = list(range(settings.replicas))
    found = smallest_window(graphs, everybody)
    if found is None:
        union = np.maximum.reduce(graphs)
        source, target = _unreached(union, everybody)
        raise SeedbedError(
            ExitCode.CONFIG,
            f"gossip.graphs: nothing that learner {source} sends ever reaches learner {target}, "
            f"in all {len(graphs)} graphs together: add edges until they are strongly connected",
        )
    if settings.connectivity_window and settings.connectivity_window < found:
        first = next(
            k
            for k in range(len(graphs))
            if not _connected(_union(graphs, k, settings.connectivity_window), everybody)
        )
        source, target = _unreached(_union(graphs, first, settings.connectivity_window), everybody)
        raise SeedbedError(
            ExitCode.CONFIG,
            f"gossip.connectivity_window {settings.connectivity_window}: in the "
            f"{settings.connectivity_window} graphs from "
            f"gossip.graphs[{first}] on nothing that learner {source} sends reaches learner "
            f"{target}; {found} in a row are strongly connected: set it to {found}, or to 0",
        )
    return Topology(graphs, settings.connectivity_window or found)


def smallest_window(graphs: Sequence[Matrix], nodes: Sequence[int]) -> int | None:
    """The smallest B such that the union of any B graphs in a row is strongly connected on
    `nodes`; None where all of them together are not.
    """
    for size in range(1, len(graphs) + 1):
        if all(_connected(_union(graphs, k, size), nodes) for k in range(len(graphs))):
            return size
    return None


def _union(graphs: Sequence[Matrix], first: int, size: int) -> Matrix:
    matrices = [graphs[(first + k) % len(graphs)] for k in range(size)]
    union: Matrix = np.maximum.reduce(matrices)
    return union


def _connected(matrix: Matrix, nodes: Sequence[int]) -> bool:
    return _unreached(matrix, nodes) == (-1, -1)


def _unreached(matrix: Matrix, nodes: Sequence[int]) -> tuple[int, int]:
    """A learner and one that its messages never reach; (-1, -1) where there is none."""
    for source in nodes:
        reached, fresh = {source}, [source]
        while fresh:
            receivers = np.flatnonzero(matrix[:, fresh.pop()])
            new = {int(i) for i in receivers} - reached
            reached |= new
            fresh += new
        missing = [node for node in nodes if node not in reached]
        if missing:
            return source, missing[0]
    return -1, -1


def _matrix(graph: Graph, count: int, where: str) -> Matrix:
    if isinstance(graph, Weights):
        return _checked(graph, count, where)
    if graph == "ring":
        edges = [(i, (i + 1) % count) for i in range(count)]
    elif graph == "exponential":
        steps = [2**k for k in range(count.bit_length()) if 2**k < count]
        edges = [(i, (i + step) % count) for i in range(count) for step in steps]
    elif graph == "complete":
        edges = [(i, j) for i in range(count) for j in range(count)]
    else:
        edges = [(edge[0], edge[1]) for edge in graph]
        for source, target in edges:
            if not (source < count and target < count) or source == target:
                raise SeedbedError(
                    ExitCode.CONFIG,
                    f"{where}: the edge [{source}, {target}] is none between two of the "
                    f"{count} learners 0 to {count - 1}",
                )
    adjacency = np.eye(count, dtype=bool)
    for source, target in edges:
        adjacency[target, source] = True
    return _uniform(adjacency)


def _uniform(adjacency: NDArray[np.bool_]) -> Matrix:
    """Everybody's own and what it receives count the same (Algorithm 1, footnote)."""
    matrix: Matrix = adjacency / adjacency.sum(axis=1, keepdims=True)
    return matrix


def _checked(graph: Weights, count: int, where: str) -> Matrix:
    rows = graph.weights
    if len(rows) != count or any(len(row) != count for row in rows):
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows})}"
        raise SeedbedError(
            ExitCode.CONFIG,
            f"{where}: weights has {shape} numbers, and there are {count} learners: "
            f"{count} rows of {count}",
        )
    matrix = np.array(rows, np.float64)
    for i, total in enumerate(matrix.sum(axis=1)):
        if abs(total - 1) > _ROUNDING:
            raise SeedbedError(
                ExitCode.CONFIG,
                f"{where}: row {i} sums to {total:.6g}, and must to 1: learner {i}'s parameters "
                "would grow or shrink with every mixing",
            )
        if not matrix[i, i]:
            raise SeedbedError(
                ExitCode.CONFIG,
                f"{where}: row {i} has weight 0 in column {i}: learner {i} would throw away what "
                "it has learned",
            )
    normal: Matrix = matrix / matrix.sum(axis=1, keepdims=True)
    return normal


def _without(graph: Matrix, dead: Sequence[int]) -> Matrix:
    """A graph in which the dead have no part. What would pass through one goes on at once, in the
    proportions in which it would have come out (the censored Markov chain).
    """
    uniform = np.allclose(graph, _uniform(graph > 0))
    matrix = graph.copy()
    for node in dead:
        stays = matrix[node, node]
        if stays < 1:
            through = matrix[node] / (1 - stays)
            through[node] = 0
            matrix += np.outer(matrix[:, node], through)
            matrix[:, node] = 0
        else:  # it hears nobody: its share goes back to whoever took it
            matrix[np.arange(len(matrix)), np.arange(len(matrix))] += matrix[:, node]
            matrix[:, node] = 0
        matrix[node] = 0
        matrix[node, node] = 1
    return _uniform(matrix > 0) if uniform else matrix
