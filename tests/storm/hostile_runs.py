"""Runs that learn beside hostile peers: each process is honest, and the lies come from here."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from seedbed.replay.sequence import SequenceSpec
from seedbed.runtime.tokens import AUTHORIZATION, BEARER, Role
from tests.storm.calls import Entry
from tests.storm.credentials import RoleFiles
from tests.storm.lies import Lie
from tests.storm.lies_act import ActLies, UnrollLies
from tests.storm.lies_gossip import GossipLies
from tests.storm.lies_replay import ReplayLies
from tests.storm.lies_status import StatusLies
from tests.storm.run_files import newest_name, updates
from tests.storm.runs import COMMON, VTRACE, ReplayRun
from tests.support.processes import START_S, Cluster, Process, free_port
from tests.support.shard_process import ShardProcess
from tests.support.waiting import wait_for

NAME = "bad-days"  # of the experiment of `Cluster`
ACTORS = 2


class HostileRun:
    """A run of one learner and its actors, with credentials, which no process ends.

    Args:
        folder: a new one.
        seed: of what is drawn.
        files: credentials of its processes.

    Attributes:
        name: of the run.
        directories: run directory of each learner.
        processes: all processes, by name.
    """

    name = "hostile vtrace"
    overrides: tuple[str, ...] = VTRACE
    tls = False
    learners = 1
    release = "this"  # of the credentials

    def __init__(self, folder: Path, seed: int, files: RoleFiles) -> None:
        folder.mkdir(parents=True)
        self.seed, self.files = seed, files
        self.processes: dict[str, Process] = {}
        self._ports = [free_port() for _ in range(self.learners)]
        self.directories = [folder / f"run-{rank}" for rank in range(self.learners)]
        self._shards: dict[str, ShardProcess] = {}
        self._cluster = Cluster(folder, *COMMON, *self.overrides, *self._more(folder))

    def _more(self, folder: Path) -> tuple[str, ...]:
        return ()

    def entry(self, port: int, role: Role, rank: int | None = None) -> Entry:
        """Return what a credential opens at a port."""
        certificate = role if self.tls else None
        credentials = self.files.credentials(role, certificate, self.release, rank)
        return Entry(f"127.0.0.1:{port}", credentials)

    def start(self) -> None:
        """Start everything, and wait until every learner has made updates and a checkpoint."""
        for rank, directory in enumerate(self.directories):
            self._start_learner(rank, directory)
        for index in range(ACTORS * self.learners):
            address = f"127.0.0.1:{self._ports[index % self.learners]}"
            words = ("--learner", address, "--index", str(index))
            options = self.files.options(Role.ACTOR, self.tls, self.release)
            self.processes[f"actor {index}"] = self._cluster.start("actor", *words, *options)
        for directory in self.directories:
            wait_for(lambda directory=directory: self._is_up(directory), "it trains", START_S)

    def _start_learner(self, rank: int, directory: Path) -> None:
        listen = f"127.0.0.1:{self._ports[rank]}"
        words = ("--run-dir", str(directory), "--listen", listen, "--rank", str(rank))
        options = self._learner_options(rank)
        self.processes[f"learner {rank}"] = self._cluster.start("learner", *words, *options)

    def _learner_options(self, rank: int) -> tuple[str, ...]:
        return self.files.options(Role.LEARNER, self.tls)

    def _is_up(self, directory: Path) -> bool:
        for process in self.processes.values():
            process.runs()
        return updates(directory) > 0 and newest_name(directory) != ""

    def lies(self) -> list[Lie]:
        """Return the lies about this run."""
        of_actor = ActLies(self.entry(self._ports[0], Role.ACTOR)).lies()
        return of_actor + StatusLies(self.entry(self._ports[0], Role.OBSERVER)).lies()

    def close(self) -> None:
        self._cluster.close()
        for shard in self._shards.values():
            shard.end()


class HostileImpalaRun(HostileRun):
    """Actors that choose their actions, over TLS."""

    name = "hostile impala"
    overrides = ("learner.inference.location=actor", *VTRACE)
    tls = True

    def lies(self) -> list[Lie]:
        return UnrollLies(self.entry(self._ports[0], Role.ACTOR)).lies()


class _TcpShard(ShardProcess):
    over_tcp = True


class _LyingShard(_TcpShard):
    module = "tests.storm.lying_shard"


class HostileReplayRun(HostileRun):
    """R2D2 with two shards, one of which is hostile too."""

    name = "hostile r2d2"
    overrides = tuple(one for one in ReplayRun.overrides if not one.startswith("actor."))

    def _more(self, folder: Path) -> tuple[str, ...]:
        options = self.files.options(Role.SHARD, self.tls)
        for name, kind in (("shard", _TcpShard), ("lying shard", _LyingShard)):
            made = kind(folder / name.replace(" ", "-"), 4000)
            made.folder.mkdir()
            made.metrics_port = free_port()
            made.start(*options).listening()
            assert made.process is not None
            self._shards[name], self.processes[name] = made, made.process
        addresses = ", ".join(shard.address for shard in self._shards.values())
        return (f"learner.replay.shards=[{addresses}]",)

    def lies(self) -> list[Lie]:
        port = int(self._shards["shard"].address.rsplit(":", 1)[1])
        of_replay = ReplayLies(self.entry(port, Role.LEARNER), self._spec()).lies()
        return [*super().lies(), *of_replay, *of_replay]

    def _spec(self) -> SequenceSpec:
        url = f"http://localhost:{self._shards['shard'].metrics_port}/status"
        credentials = self.files.credentials(Role.OBSERVER, None)
        assert credentials.tokens is not None
        secret = credentials.tokens.secret(Role.OBSERVER)
        request = urllib.request.Request(url, headers={AUTHORIZATION: BEARER + secret})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return SequenceSpec.from_json(json.load(answer)["spec"])


class HostileGossipRun(HostileRun):
    """Learners 0 and 1 gossip, and learner 2, which has the key of its rank, is hostile."""

    name = "hostile gossip"
    learners = 2  # that are honest
    release = "ranked"
    replicas = 3
    topology = "gossip"
    methods: tuple[str, ...] = ("Push",)

    def _more(self, folder: Path) -> tuple[str, ...]:
        self._peers = [free_port() for _ in range(self.replicas)]
        addresses = [f"127.0.0.1:{port}" for port in self._peers]
        return (
            f"gossip.replicas={self.replicas}",
            f"gossip.addresses={json.dumps(addresses)}",
            f"gossip.topology={self.topology}",
            "gossip.deadline_s=10",
            "stop.env_frames=100_000_000",
            "stop.dollars=1000",
        )

    def _learner_options(self, rank: int) -> tuple[str, ...]:
        return self.files.options(Role.LEARNER, self.tls, self.release, rank)

    def lies(self) -> list[Lie]:
        own = self.learners if self.replicas > self.learners else None
        first, other = (self.entry(port, Role.LEARNER, own) for port in self._peers[:2])
        return GossipLies(first, other, NAME, self.replicas, own, self.methods).lies()


class HostileRingRun(HostileGossipRun):
    """Two learners by all-reduce; the hostile process has a learner's token, and no key."""

    name = "hostile allreduce"
    replicas = 2
    topology = "allreduce"
    methods = ("Push", "Reduce")


class HostileHogwildRun(HostileGossipRun):
    """Learners by hogwild, over TLS: learner 0 holds the parameters of all."""

    name = "hostile hogwild"
    topology = "hogwild"
    methods = ("Push", "Accumulate")
    tls = True


HOSTILE_RUNS = (
    HostileRun,
    HostileImpalaRun,
    HostileReplayRun,
    HostileGossipRun,
    HostileRingRun,
    HostileHogwildRun,
)
