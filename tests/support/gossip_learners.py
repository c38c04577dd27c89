"""Learners that gossip within one process: real streams between them, a thread and a folder each,
and a trainer whose updates are known.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment, parse_experiment
from seedbed.gossip.exchange import LocalLearner
from seedbed.gossip.gossip_exchange import GossipExchange
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.threads import Threads
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipStats
from seedbed.v1.gossip_pb2 import Member
from tests.support.waiting import wait_for

LAYOUT = ParameterLayout(("dense/kernel", "dense/bias"), ((3, 2), (2,)))


def experiment(folder: Path, count: int, **learners: Any) -> Experiment:
    """An experiment of so many learners with sockets in a folder."""
    addresses = [f"unix:{folder}/{rank}.sock" for rank in range(count)]
    settings = {"replicas": count, "addresses": addresses, "deadline_s": 20.0, **learners}
    return parse_experiment(
        "name: team\nenvironment: {id: CartPole-v1}\nagent: vtrace\n"
        + f"gossip: {settings!r}".replace("None", "null")
    )


class KnownTrainer:
    """Update v of learner i adds a vector that is drawn from (i, v) alone."""

    def __init__(self, rank: int, layout: ParameterLayout = LAYOUT) -> None:
        self.rank, self.layout_ = rank, layout
        self.updates = 0
        self._params = [np.zeros(shape, np.float32) for shape in layout.shapes]
        self.given: list[int] = []  # the update that each step made

    def update(self, number: int) -> NDArray[np.float32]:
        """What update `number` adds [d]."""
        draw = np.random.default_rng([self.rank, number])
        return draw.normal(size=self.layout_.size).astype(np.float32)

    def step(self, batch: Any) -> dict[str, Any]:
        self.updates += 1
        self.given.append(self.updates)
        added = self.layout_.split(self.update(self.updates))
        self._params = [own + more for own, more in zip(self._params, added, strict=True)]
        return {"loss": np.float32(0)}

    def params(self) -> list[NDArray[np.float32]]:
        return self._params

    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        self._params = [np.array(array) for array in arrays]

    def mix(self, own: float, others: list[tuple[float, NDArray[np.float32]]]) -> None:
        flat = np.float32(own) * self.flat
        for weight, other in others:
            flat = flat + np.float32(weight) * other
        self._params = self.layout_.split(flat)

    @property
    def flat(self) -> NDArray[np.float32]:
        return self.layout_.flatten(self._params)


class GossipLearner:
    """One learner: its gossip, and a thread that makes iterations as it is told."""

    def __init__(
        self,
        config: Experiment,
        rank: int,
        folder: Path,
        layout: ParameterLayout = LAYOUT,
        updates: int = 0,
    ) -> None:
        settings = config.gossip
        self.rank = rank
        self.trainer = KnownTrainer(rank, layout)
        self.trainer.updates = updates
        self.threads = Threads()
        self.stats = GossipStats(peers=settings.replicas, alive=settings.replicas)
        self.membership = Membership(rank, settings.replicas, settings.deadline_s)
        self.over = ""
        self.transport = GossipTransport(
            config, self.membership, layout, self.threads, PLAIN, self._heartbeat, Future
        )
        self.folder = folder / f"learner-{rank}" / "gossip"
        self.folder.parent.mkdir(exist_ok=True)
        every_s, every = settings.snapshot_every_s, settings.distance_every
        log = GossipLog(self.folder, every_s, settings.replicas, self.stats, every)
        trainer: Any = self.trainer
        learner = LocalLearner(trainer, layout, Counters(), self.stats, self.threads)
        self.gossip = GossipExchange(settings, learner, self.transport, log)
        self.publisher = self.gossip.publisher
        self._go = threading.Semaphore(0)
        self.done = self.told = 0

    def _heartbeat(self) -> Member:
        return Member(
            iteration=self.membership.iteration,
            updates=self.trainer.updates,
            over=self.over,
            waiting=bool(self.stats.waiting),
        )

    def start(self) -> None:
        self.gossip.start()
        self.threads.start("training", self._run)

    def _run(self) -> None:
        while not self.threads.stopping.is_set():
            if self._go.acquire(timeout=0.05):
                self.gossip.resync_if_left_behind()
                self.gossip.step({})
                self.done += 1

    def let(self, iterations: int) -> None:
        """Let it make so many more."""
        self.told += iterations
        for _ in range(iterations):
            self._go.release()

    @property
    def idle(self) -> bool:
        """Whether it has done all that it was told."""
        return self.done == self.told

    def end(self) -> None:
        """Leave, as a learner that stops does."""
        wait_for(lambda: self.idle, "its last iteration")
        self.publisher.flush()
        self.kill()
        assert self.threads.failure is None, self.threads.failure

    def kill(self) -> None:
        """Leave in the midst of everything."""
        self.threads.stopping.set()
        self.gossip.close()
        assert not self.threads.join(20), "its threads end"


def rows(folder: Path, rank: int) -> list[list[str]]:
    """The rows of a learner's events.csv."""
    text = (folder / f"learner-{rank}" / "gossip" / "events.csv").read_text()
    header, *lines = text.splitlines()
    assert header == "time,kind,iteration,norm,mixed"
    return [line.split(",") for line in lines]


def replayed(folder: Path, trainers: list[KnownTrainer]) -> list[NDArray[np.float64]]:
    """Where the learners are, worked out slowly from what they recorded alone: Algorithm 1."""
    d = trainers[0].layout_.size
    x = [np.zeros(d) for _ in trainers]
    sent: dict[tuple[int, int], NDArray[np.float64]] = {}
    given = [iter(trainer.given) for trainer in trainers]
    waiting = [rows(folder, trainer.rank) for trainer in trainers]
    while any(waiting):
        before = sum(map(len, waiting))
        for i, events in enumerate(waiting):
            while events and _apply(events[0], i, x, sent, given, trainers):
                events.pop(0)
        assert sum(map(len, waiting)) < before, f"no learner ever sent what {waiting} mixed"
    return x


def _apply(
    event: list[str], i: int, x: Any, sent: Any, given: Any, trainers: list[KnownTrainer]
) -> bool:
    _, kind, iteration, norm, mixed = event
    if kind == "update":
        added = trainers[i].update(next(given[i])).astype(np.float64)
        assert np.isclose(float(norm), np.linalg.norm(added), rtol=1e-4), "the norm of the update"
        x[i] = x[i] + added
        sent[i, int(iteration)] = x[i]
    elif kind in ("mix", "adopt"):
        parts = []
        for word in mixed.split():
            sender, rest = word.split("@")
            version, weight = rest.split("*")
            if (int(sender), int(version)) not in sent:
                return False
            parts.append((float(weight), sent[int(sender), int(version)]))
        own = 1 - sum(weight for weight, _ in parts)
        x[i] = own * x[i] + sum(weight * message for weight, message in parts)
    return True
