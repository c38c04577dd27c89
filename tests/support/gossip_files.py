"""Algorithm 1 in a few lines, with delays, failures and clocks that differ, and the files that such
learners write. Every step is also kept as a dense matrix, for a slow reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.events import HEADER

Array = NDArray[np.float64]
TICK_S = 0.001


@dataclass
class Gossip:
    """n learners with d parameters each.

    Attributes:
        weights: [n, n] rows of the mixing matrix.
        delay: most ticks that a message takes.
        mixes: how likely a learner that has all messages mixes them.
        skew: [n] seconds by which clocks are ahead.
        every_s: seconds between snapshots.
        apart, update: how far the learners begin from each other, and how long updates are.
        synchronous: in a tick all learners update, then all mix; else one of them does both.
    """

    weights: Array
    d: int = 5
    seed: int = 0
    delay: int = 0
    mixes: float = 1.0
    skew: Array | None = None
    every_s: float = 0.02
    apart: float = 1.0
    update: float = 1.0
    synchronous: bool = False
    now: float = 1000.0
    # In the true order: (time, kind, learner, update vector or messages with weights, version).
    history: list[tuple[float, str, int, Any, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.n = len(self.weights)
        self.rng = np.random.default_rng(self.seed)
        self.clock = np.zeros(self.n) if self.skew is None else self.skew
        self.x = self.rng.normal(size=(self.n, self.d)) * self.apart
        self.x = self.x.astype(np.float32).astype(np.float64)  # as files keep them
        self.version = [0] * self.n
        self.messages: dict[tuple[int, int], Array] = {}
        self.post: list[tuple[int, int, int, int]] = []  # due, to, sender, version
        self.inbox: list[dict[int, int]] = [{} for _ in range(self.n)]
        self.alive = [True] * self.n
        self.snapshots: list[dict[int, Array]] = [{} for _ in range(self.n)]
        self.rows: list[list[str]] = [[] for _ in range(self.n)]
        self.next = [int(np.ceil((self.now + c) / self.every_s)) for c in self.clock]
        self.ticks = 0
        for i in range(self.n):
            self._log(i, "start", 0, "", "")

    def _log(self, i: int, kind: str, iteration: int, norm: str, mixed: str) -> None:
        self.now += 1e-6
        self.pass_time(i)
        at = float(self.now + self.clock[i])
        self.rows[i].append(f"{at!r},{kind},{iteration},{norm},{mixed}")

    def pass_time(self, i: int) -> None:
        """Take the snapshots that are due by the learner's clock."""
        while self.next[i] * self.every_s <= self.now + self.clock[i]:
            if self.alive[i]:
                self.snapshots[i][self.next[i]] = self.x[i].copy()
            self.next[i] += 1

    def mixing(self) -> Array:
        """Return the weights among the learners alive; a learner itself gets the rest."""
        w: Array = self.weights * np.array(self.alive)
        np.fill_diagonal(w, 0.0)
        return w

    def update_of(self, i: int, vector: Array | None = None) -> None:
        u = self.rng.normal(size=self.d) if vector is None else vector
        if vector is None:
            u *= self.update * self.rng.uniform() / np.linalg.norm(u)
        self.version[i] += 1
        self._log(i, "update", self.version[i], repr(float(np.linalg.norm(u))), "")
        self.x[i] = self.x[i] + u
        self.messages[i, self.version[i]] = self.x[i].copy()
        self.history.append((self.now, "update", i, u, self.version[i]))
        for j in np.flatnonzero(self.mixing()[:, i]):
            due = self.ticks + int(self.rng.integers(0, self.delay + 1))
            self.post.append((due, int(j), i, self.version[i]))

    def mix_of(self, i: int) -> None:
        self.deliver()
        row = self.mixing()[i]
        peers = [int(j) for j in np.flatnonzero(row)]
        if not peers or any(j not in self.inbox[i] for j in peers):
            return
        if self.rng.uniform() >= self.mixes:
            return
        used = [(j, self.inbox[i][j], float(row[j])) for j in peers]
        self.take(i, "mix", used)
        self.inbox[i] = {}

    def take(self, i: int, kind: str, used: list[tuple[int, int, float]]) -> None:
        text = " ".join(f"{j}@{v}*{w!r}" for j, v, w in used)
        self._log(i, kind, self.version[i], "", text)
        self.x[i] = (1 - sum(w for _, _, w in used)) * self.x[i]
        for j, v, w in used:
            self.x[i] += w * self.messages[j, v]
        self.history.append((self.now, kind, i, used, 0))

    def deliver(self) -> None:
        late = []
        for due, to, sender, version in self.post:
            if due > self.ticks:
                late.append((due, to, sender, version))
            elif self.alive[to] and self.inbox[to].get(sender, -1) < version:
                self.inbox[to][sender] = version
        self.post = late

    def tick(self) -> None:
        """One iteration of a random learner, or one of each."""
        self.ticks += 1
        self.now += TICK_S
        alive = np.flatnonzero(self.alive)
        turn = alive if self.synchronous else [self.rng.choice(alive)]
        for i in turn:
            self.update_of(int(i))
        for i in turn:
            self.mix_of(int(i))

    def stop(self, i: int) -> None:
        for j in range(self.n):
            self.pass_time(j)
        self.alive[i] = False
        self.inbox[i] = {}
        self._graph()

    def come_back(self, i: int, adopts: bool = True) -> None:
        self.pass_time(i)  # no snapshot was taken meanwhile
        self._log(i, "start", self.version[i], "", "")
        self.alive[i] = True
        if adopts:
            sender = int(self.rng.choice([j for j in np.flatnonzero(self.alive) if j != i]))
            self.take(i, "adopt", [(sender, self.version[sender], 1.0)])
        else:
            self.x[i] = self.rng.normal(size=self.d)
        self._graph()

    def lose_directory(self, i: int) -> None:
        """Lose the log of a stopped learner: it begins with its return, with new versions."""
        assert not self.alive[i]
        self.rows[i], self.snapshots[i] = [], {}
        self.version[i] += 10_000

    def _graph(self) -> None:
        ranks = [i for i in range(self.n) if self.alive[i]]
        for i in ranks:
            self._log(i, "graph", self.version[i], "", " ".join(map(str, ranks)))

    def finish(self) -> None:
        for i in range(self.n):
            self.pass_time(i)

    def write(self, run_dir: Path) -> None:
        """learner-i/gossip/ of every learner."""
        self.finish()
        for i in range(self.n):
            folder = run_dir / f"learner-{i}" / "gossip"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "events.csv").write_text("\n".join([HEADER, *self.rows[i]]) + "\n")
            for number, x in self.snapshots[i].items():
                np.save(folder / f"snapshot-{number:012d}.npy", x.astype(np.float32))


def ring(n: int) -> Array:
    """Half of its own, half of the one before it."""
    return 0.5 * np.eye(n) + 0.5 * np.roll(np.eye(n), 1, axis=0)


def random_graph(n: int, rng: np.random.Generator) -> Array:
    """Row-stochastic, a ring and random edges, random weights."""
    mask = (rng.uniform(size=(n, n)) < 0.3) | (ring(n) > 0)
    weights = mask * rng.uniform(0.1, 1.0, size=(n, n))
    out: Array = weights / weights.sum(axis=1, keepdims=True)
    return out
