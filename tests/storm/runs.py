"""Runs that learn while the storm hits their processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from seedbed.runtime.tokens import Role
from tests.storm import targets
from tests.storm.credentials import RoleFiles
from tests.storm.fuzz import Door
from tests.storm.proxy import StormyProxy
from tests.storm.run_files import alive, children, newest_name, status, updates
from tests.support.processes import START_S, Cluster, Process, free_port, guarded, parent
from tests.support.shard_process import ShardProcess
from tests.support.waiting import wait_for

COMMON = (
    "actor.envs_per_group=8",
    "learner.checkpoint.every_s=1",
    "learner.inference.slots=256",
)
VTRACE = (
    "learner.optimizer.learning_rate=3.0e-3",
    "learner.optimizer.max_gradient_norm=1.0",
    "vtrace.entropy_cost=0.01",
    "vtrace.reward_scale=0.1",
)


class Victim(NamedTuple):
    """A process that can be hit.

    Attributes:
        kind: learner, actor, shard or peer.
        pid: the process.
        revive: starts it again; None where a supervisor does.
        learners: run directories of the learners that end with it.
    """

    kind: str
    pid: int
    revive: Callable[[], None] | None
    learners: tuple[Path, ...] = ()


class LearningRun:
    """A run of one learner that `seedbed train` starts.

    Args:
        folder: a new one.
        seed: of the proxies.
        files: credentials of its processes.

    Attributes:
        name: of the run.
        directories: run directory of each learner.
        proxies: proxies between its processes.
    """

    name = "train"
    overrides: tuple[str, ...] = ("actor.processes=1", *VTRACE)
    arguments: tuple[str, ...] = ()

    def __init__(self, folder: Path, seed: int, files: RoleFiles) -> None:
        folder.mkdir(parents=True)
        self.seed, self.files = seed, files
        self.cluster = Cluster(folder, *COMMON, *self.overrides, *self._more(folder))
        self.directories = self._directories()
        self.proxies = self._make_proxies()
        self.train: Process
        self._learner = 0  # the process that trains; `train` may be its guard
        self._actors: list[Process] = []

    def _more(self, folder: Path) -> tuple[str, ...]:
        return ()

    def _directories(self) -> list[Path]:
        return [self.cluster.run]

    def _make_proxies(self) -> list[StormyProxy]:
        return [StormyProxy(f"unix:{self.cluster.run}/learner.sock", self.seed)]

    def start(self) -> None:
        """Start everything, and wait until every learner has made updates and a checkpoint."""
        self._start_train()
        for index in range(self._remote_actors()):
            self._start_actor(index)
        for directory in self.directories:
            wait_for(
                lambda directory=directory: self._is_up(directory),
                f"{directory} trains: {self.train.said}",
                START_S,
            )

    def _remote_actors(self) -> int:
        return 4

    def _is_up(self, directory: Path) -> bool:
        self.train.runs()
        return updates(directory) > 0 and newest_name(directory) != ""

    def _start_train(self) -> None:
        self.train = self.cluster.train(*self.arguments)

    def _start_actor(self, index: int) -> None:
        address = self.proxies[0].address
        made = self.cluster.start("actor", "--learner", address, "--index", str(index + 1))
        self._actors[index : index + 1] = [made]

    def victims(self) -> list[Victim]:
        """List the processes that run now."""
        self._learner = guarded(self.train.pid)
        made = [Victim("learner", self._learner, self._start_train, tuple(self.directories))]
        made += [Victim("actor", pid, None) for pid in self._supervised_actors()]
        for index, actor in enumerate(self._actors):
            start = lambda index=index: self._start_actor(index)  # noqa: E731
            made.append(Victim("actor", actor.pid, start))
        return made

    def _supervised_actors(self) -> set[int]:
        return self.train.children()

    def exit_code(self, pid: int) -> int | None:
        """Wait for a process that was started here; None for a child of one."""
        if pid == self._learner:
            return self.train.wait(START_S)
        for process in (self.train, *self._actors):
            if process.pid == pid:
                return process.wait(START_S)
        return None

    def revive_dead(self) -> list[str]:
        """Start again what has ended by itself; return what it said."""
        said = []
        for index, actor in enumerate(self._actors):
            if actor.popen.poll() is not None:
                said.append(f"an actor ended with {actor.popen.returncode}: {actor.said[-300:]}")
                self._start_actor(index)
        if self.train.popen.poll() is not None:
            words = self.train.said[-600:]
            said.append(f"{self.name} ended with {self.train.popen.returncode}: {words}")
            self._start_train()
        return said

    def pids(self) -> dict[str, int]:
        """Return the processes whose memory is reported, by name."""
        return {self.name: guarded(self.train.pid)}

    def end(self) -> int:
        """Send SIGTERM; return the exit code of the run."""
        children = self.train.children()
        self.train.send(signal.SIGTERM)
        code = self.train.wait(START_S)
        wait_for(lambda: not any(map(alive, children)), f"{self.name}: children end", START_S)
        return code

    def close(self) -> None:
        for process in (self.train, *self._actors):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
        self.cluster.close()
        for proxy in self.proxies:
            proxy.close()


class VtraceRun(LearningRun):
    """A learner and actors with tokens: four over TLS and a proxy, one on a unix socket."""

    name = "vtrace"

    def _make_proxies(self) -> list[StormyProxy]:
        self._port = free_port()
        return [StormyProxy(f"127.0.0.1:{self._port}", self.seed)]

    def _remote_actors(self) -> int:
        return 5

    def _start_train(self) -> None:
        (self.cluster.run).mkdir(exist_ok=True)
        listen = ("--listen", f"127.0.0.1:{self._port}", "--listen", self._socket)
        self.train = self.cluster.start(
            *("learner", "--run-dir", str(self.cluster.run), *listen),
            *self.files.options(Role.LEARNER, tls=True),
        )

    @property
    def _socket(self) -> str:
        return f"unix:{self.cluster.run}/learner.sock"

    def _start_actor(self, index: int) -> None:
        address = self.proxies[0].address if index else self._socket
        options = self.files.options(Role.ACTOR, tls=True)
        words = ("--learner", address, "--index", str(index + 1), *options)
        self._actors[index : index + 1] = [self.cluster.start("actor", *words)]

    def _supervised_actors(self) -> set[int]:
        return set()

    def door(self) -> Door:
        """Return the door of the learner, for mutated messages."""
        callers = self.files.callers(Role.LEARNER, targets.ACT.path, tls=True)
        return Door(f"127.0.0.1:{self._port}", targets.ACT, callers)


class ReplayRun(LearningRun):
    """R2D2 with two shards in files, one of them behind a proxy."""

    name = "r2d2"
    overrides = (
        "actor.processes=1",
        "agent=r2d2",
        "learner.lstm_units=16",
        "learner.optimizer.learning_rate=2.0e-3",
        "learner.replay.storage=remote",
        "learner.replay.min_size=100",
        "learner.replay.ratio=2",
        "learner.replay.priority_exponent=0.7",
        "r2d2.burn_in=4",
        "r2d2.epsilon_levels=16",
        "r2d2.target_update_period=100",
    )

    def _more(self, folder: Path) -> tuple[str, ...]:
        self._shards = [ShardProcess(folder / f"shard{i}", 4000) for i in range(2)]
        for shard in self._shards:
            shard.folder.mkdir()
            shard.start().listening()
        self._shard_proxy = StormyProxy(self._shards[0].address, self.seed + 1)
        names = ", ".join((self._shard_proxy.address, self._shards[1].address))
        return (f"learner.replay.shards=[{names}]",)

    def _make_proxies(self) -> list[StormyProxy]:
        return [*super()._make_proxies(), self._shard_proxy]

    def victims(self) -> list[Victim]:
        made = super().victims()
        for shard in self._shards:
            assert shard.process is not None
            revive = lambda shard=shard: shard.start().listening()  # noqa: E731
            made += [Victim("shard", shard.process.pid, revive)] * 2
        return made

    def exit_code(self, pid: int) -> int | None:
        for shard in self._shards:
            if shard.process is not None and shard.process.pid == pid:
                return shard.process.wait(START_S)
        return super().exit_code(pid)

    def revive_dead(self) -> list[str]:
        said = []
        for shard in self._shards:
            assert shard.process is not None
            if (code := shard.process.popen.poll()) is not None:
                said.append(f"a shard ended with {code}: {shard.process.said[-300:]}")
                shard.start().listening()
        return said + super().revive_dead()

    def pids(self) -> dict[str, int]:
        shards = {f"shard {i}": shard.process.pid for i, shard in enumerate(self._shards)
                  if shard.process is not None}  # fmt: skip
        return {**super().pids(), **shards}

    def end(self) -> int:
        code = super().end()
        return code or max(shard.stop() for shard in self._shards)

    def close(self) -> None:
        super().close()
        for shard in self._shards:
            shard.end()


class GossipRun(LearningRun):
    """Three learners that gossip, started by one process."""

    name = "gossip"
    overrides = ("actor.processes=1", "gossip.deadline_s=10", *VTRACE)
    arguments = ("--learners", "3")

    def _directories(self) -> list[Path]:
        return [self.cluster.run / f"learner-{rank}" for rank in range(3)]

    def _make_proxies(self) -> list[StormyProxy]:
        return []

    def _remote_actors(self) -> int:
        return 0

    def victims(self) -> list[Victim]:
        made = [Victim("learner", self.train.pid, self._start_train, tuple(self.directories))]
        for directory in self.directories:
            pid = status(directory).get("process", {}).get("pid", 0)
            if parent(pid) in children(self.train.pid):  # its guard
                made += [Victim("peer", pid, None, (directory,))] * 2
                made += [Victim("actor", child, None) for child in children(pid)]
        return made

    def pids(self) -> dict[str, int]:
        return {
            f"gossip {rank}": status(directory).get("process", {}).get("pid", 0)
            for rank, directory in enumerate(self.directories)
        }


RUNS = (VtraceRun, ReplayRun, GossipRun)


class Startable(Protocol):
    """A run that has not started."""

    def start(self) -> None: ...

    def close(self) -> None: ...


_Run = TypeVar("_Run", bound=Startable)


@contextlib.contextmanager
def running(run: _Run) -> Iterator[_Run]:
    """Start a run, and close it at the end of the block."""
    try:
        run.start()
        yield run
    finally:
        run.close()
