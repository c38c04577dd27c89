"""Log of a learner's gossip for `seedbed analyze`: `gossip/` in its run directory.

events.csv         one row for each update, mixing, and change of the graph
snapshot-C.npy     parameters [d] float32 at unix time C · snapshot_every_s
gradient-V.npy     gradient [d] float32 of local iteration V
learners           number of learners, snapshot_every_s
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from seedbed.gossip.parameters import FlatParams
from seedbed.gossip.transport.buffers import Message
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry.gossip import GossipStats

log = logging.getLogger(__name__)

HEADER = "time,kind,iteration,norm,mixed\n"
# Snapshots and gradients that stay, each.
MAX_FILES = 200


class BoundedSnapshots:
    """At most `MAX_FILES` files NAME-NUMBER.npy: every second one is deleted beyond that.

    Which files stay depends on the numbers alone, so all learners keep the same ones.

    Args:
        folder: Folder of the files, which may hold some already.
        name: First part of the file names.

    Attributes:
        step: Numbers that are no multiple of it are not stored.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        files = folder.glob(f"{name}-*.npy")
        self._numbers = {int(path.stem.rsplit("-", 1)[1]) for path in files}
        self.step = 1
        # So many files may have been thinned before: then all numbers are multiples of a step.
        if len(self._numbers) >= MAX_FILES // 2:
            while not any(number % (2 * self.step) for number in self._numbers):
                self.step *= 2
        self._thin()

    def write(self, number: int, values: FlatParams) -> None:
        """Store an array, if its number is one of those that stay.

        Args:
            number: Number of the file, from 0.
            values: The array [d].

        Raises:
            OSError: The file cannot be written.
        """
        if number % self.step:
            return
        np.save(self._path(number), values)
        self._numbers.add(number)
        self._thin()

    def _thin(self) -> None:
        while sum(number % self.step == 0 for number in self._numbers) > MAX_FILES:
            self.step *= 2
        for number in [number for number in self._numbers if number % self.step]:
            self._path(number).unlink(missing_ok=True)
            self._numbers.remove(number)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:012d}.npy"


class GossipLog:
    """Events, snapshots and gradients of a learner, and the norms of its updates.

    `on_graph` is for the training thread, the other methods for one thread at a time. A volume
    that cannot be written to causes one warning and no failure.

    Args:
        folder: Made if missing; an existing log is continued. The log of another number of
            learners or another time between snapshots is renamed, because its versions or snapshot
            numbers do not fit the new ones.
        snapshot_every_s: Seconds between two snapshots; 0 is none.
        learners: Number of learners.
        stats: Receives the norms and distances.
        distance_every: Mixings between two measurements of the distance to the peers; 0 is none.

    Attributes:
        last_iteration: Highest local iteration of the existing log; 0 without one.
    """

    def __init__(
        self,
        folder: Path,
        snapshot_every_s: float,
        learners: int,
        stats: GossipStats | None = None,
        distance_every: int = 0,
    ) -> None:
        kind = f"{learners} {snapshot_every_s:g}\n"
        _archive(folder, kind)
        folder.mkdir(exist_ok=True)
        (folder / "learners").write_text(kind)
        self._every_s = snapshot_every_s
        self._stats, self._distance_every = stats or GossipStats(), distance_every
        self._snapshots = BoundedSnapshots(folder, "snapshot")
        self._gradients = BoundedSnapshots(folder, "gradient")
        self.last_iteration = _last_iteration(folder / "events.csv")
        self._events = (folder / "events.csv").open("a", buffering=1)
        if self._events.tell() == 0:
            self._events.write(HEADER)
        self._params: FlatParams = np.empty(0, np.float32)  # after the last event
        self._scratch: FlatParams = np.empty(0, np.float32)
        self._newest_snapshot = self._snapshot_index(time.time())
        self._warned = False

    def on_start(self, params: FlatParams, iteration: int) -> None:
        """Log the start of a process.

        Args:
            params: Parameters [d] that it loaded.
            iteration: Local iteration.
        """
        self._params, self._scratch = params, np.empty_like(params)
        self._row(time.time(), "start", iteration)

    def on_adopt(self, message: Message, iteration: int) -> None:
        """Log that the parameters of a peer replaced this learner's.

        Args:
            message: The peer's parameters.
            iteration: Local iteration.
        """
        self._params = message.values
        self._row(time.time(), "adopt", iteration, mixed=_mixed([message], ["1"]))

    def on_update(self, params: FlatParams, iteration: int, time_s: float) -> None:
        """Log a local update.

        Args:
            params: Parameters [d] after the update.
            iteration: Local iteration.
            time_s: Unix time of the update.

        Raises:
            SeedbedError: DIVERGED; the parameters are not finite.
        """
        norm = self._distance(params, self._params)
        if not math.isfinite(norm):
            raise SeedbedError(
                ExitCode.DIVERGED,
                f"the parameters are not finite after local iteration {iteration}, and no peer has "
                "got them: lower learner.optimizer.learning_rate; the newest checkpoint is from "
                "before",
            )
        self._save_snapshot(time_s)
        self._row(time_s, "update", iteration, norm=repr(norm))
        self._params, self._stats.update_norm = params, norm

    def on_mix(
        self,
        params: FlatParams,
        iteration: int,
        messages: Sequence[Message],
        weights: Sequence[float],
        time_s: float,
    ) -> None:
        """Log a mixing.

        Args:
            params: Parameters [d] after the mixing.
            iteration: Local iteration.
            messages: Messages that were mixed in.
            weights: Weight of each message.
            time_s: Unix time of the mixing.
        """
        every = self._distance_every
        if every and (self._stats.mixes - 1) % every == 0:
            for message in messages:
                distance = self._distance(self._params, message.values)
                # A new dictionary, because other threads read the old one.
                self._stats.distance = {**self._stats.distance, message.sender: distance}
        self._save_snapshot(time_s)
        self._row(time_s, "mix", iteration, mixed=_mixed(messages, map(repr, weights)))
        self._params = params

    def on_graph(self, iteration: int, alive: Sequence[int], is_disconnected: bool) -> None:
        """Log that the graphs now connect the learners `alive` only.

        Args:
            iteration: Local iteration.
            alive: Ranks of the learners alive.
            is_disconnected: Whether the graphs no longer lead from every one to every other.
        """
        disconnected = "void" if is_disconnected else ""
        self._row(time.time(), "graph", iteration, disconnected, " ".join(map(str, alive)))

    def on_gradient(self, iteration: int, gradient: FlatParams) -> None:
        """Store a gradient, if it is finite and its iteration is one of those that stay.

        Args:
            iteration: Local iteration.
            gradient: Gradient [d].
        """
        if np.isfinite(gradient).all():
            self._try(lambda: self._gradients.write(iteration, gradient))

    def _distance(self, one: FlatParams, other: FlatParams) -> float:
        """Return the 2-norm of the difference, without new memory."""
        np.subtract(one, other, out=self._scratch)
        return math.sqrt(float(np.dot(self._scratch, self._scratch)))

    def _snapshot_index(self, time_s: float) -> int:
        return int(time_s // self._every_s) if self._every_s else 0

    def _save_snapshot(self, time_s: float) -> None:
        """Store the parameters before an event, if a snapshot was due since the last event."""
        index = self._snapshot_index(time_s)
        if index > self._newest_snapshot:
            self._newest_snapshot = index
            self._try(lambda: self._snapshots.write(index, self._params))

    def _row(
        self, time_s: float, kind: str, iteration: int, norm: str = "", mixed: str = ""
    ) -> None:
        self._try(lambda: self._events.write(f"{time_s!r},{kind},{iteration},{norm},{mixed}\n"))

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if not self._warned:
                log.warning(
                    "gossip events cannot be recorded (%s): seedbed analyze will miss them", error
                )
            self._warned = True


def _mixed(messages: Sequence[Message], weights: Iterable[str]) -> str:
    return " ".join(
        f"{message.sender}@{message.iteration}*{weight}"
        for message, weight in zip(messages, weights, strict=True)
    )


def _archive(folder: Path, kind: str) -> None:
    """Rename a log of another kind to the next free FOLDER.N."""
    marker = folder / "learners"
    if not marker.exists() or marker.read_text() == kind:
        return
    number = 1
    while (archive := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(archive)
    log.info("gossip.replicas or snapshot_every_s has changed: the log until now is %s", archive)


def _last_iteration(path: Path) -> int:
    """Return the highest local iteration of the file; cut off a row that a kill left unfinished."""
    if not path.exists():
        return 0
    *rows, unfinished = path.read_text().split("\n")
    if unfinished:
        path.write_text("\n".join(rows) + "\n")
    return max((int(row.split(",")[2]) for row in rows[1:] if row), default=0)
