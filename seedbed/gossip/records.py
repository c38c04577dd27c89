"""What a learner keeps of its gossip, for `seedbed analyze`: `gossip/` in its run directory.

events.csv         a row for each update, mixing, and change of the graph
snapshot-C.npy     its parameters [d] float32 as of unix time C * snapshot_every_s
learners           how many they are, and snapshot_every_s
gradient-V.npy     the gradient [d] float32 of local iteration V
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seedbed.gossip.layout import Flat
from seedbed.gossip.mailbox import Message

log = logging.getLogger(__name__)

HEADER = "time,kind,iteration,norm,mixed\n"
KEPT = 200  # snapshots, and gradients


class Thinned:
    """At most `KEPT` files NAME-NUMBER.npy: whenever there are more, every second one goes.

    Which ones stay depends on their numbers alone, so that the learners keep the same ones.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        found = [int(path.stem.rsplit("-", 1)[1]) for path in folder.glob(f"{name}-*.npy")]
        self._numbers = sorted(found)
        self.step = 1
        if len(found) >= KEPT // 2:  # they may have been thinned: then all are multiples
            while not any(number % (2 * self.step) for number in found):
                self.step *= 2
        self._thin()

    def wants(self, number: int) -> bool:
        """Whether a file of that number is to be kept."""
        return number % self.step == 0

    def write(self, number: int, values: Flat) -> None:
        """Keep an array; OSError where it cannot be written."""
        np.save(self._path(number), values)
        if number not in self._numbers:
            self._numbers.append(number)
        self._thin()

    def _thin(self) -> None:
        while sum(number % self.step == 0 for number in self._numbers) > KEPT:
            self.step *= 2
        for number in [number for number in self._numbers if number % self.step]:
            self._path(number).unlink(missing_ok=True)
            self._numbers.remove(number)

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:012d}.npy"


class Records:
    """Writes them. `graph` in the training thread, the rest in the outbox's: rows are whole lines.

    A volume that cannot be written to is said once, and ends nothing.

    Args:
        folder: made where it is missing; what is there goes on. What another number of learners,
            or of seconds between snapshots, has left is set aside: it and the new records tell no
            common story.
        snapshot_every_s: 0 is none.
        learners: how many there are.
    """

    def __init__(self, folder: Path, snapshot_every_s: float, learners: int) -> None:
        kind = f"{learners} {snapshot_every_s:g}\n"
        _set_aside(folder, kind)
        folder.mkdir(exist_ok=True)
        (folder / "learners").write_text(kind)
        self._every_s = snapshot_every_s
        self._snapshots = Thinned(folder, "snapshot")
        self._gradients = Thinned(folder, "gradient")
        self.last_iteration = _last_iteration(folder / "events.csv")
        self._events = (folder / "events.csv").open("a", buffering=1)
        if self._events.tell() == 0:
            self._events.write(HEADER)
        self._cut = self._cut_of(time.time())
        self._failing = False

    def start(self, iteration: int) -> None:
        """A process has begun, with whatever it loaded."""
        self._row(time.time(), "start", iteration)

    def adopt(self, message: Message, iteration: int) -> None:
        """The parameters are now a peer's."""
        mixed = f"{message.sender}@{message.iteration}*1"
        self._row(time.time(), "adopt", iteration, mixed=mixed)

    def update(self, before: Flat, iteration: int, norm: float, at: float) -> None:
        """A local update has added a vector of this 2-norm to `before`."""
        self._pass_cut(before, at)
        self._row(at, "update", iteration, repr(norm))

    def mix(
        self,
        before: Flat,
        iteration: int,
        messages: Sequence[Message],
        weights: Sequence[float],
        at: float,
    ) -> None:
        """Messages were mixed into `before`, with their weights."""
        self._pass_cut(before, at)
        mixed = " ".join(
            f"{message.sender}@{message.iteration}*{weight!r}"
            for message, weight in zip(messages, weights, strict=True)
        )
        self._row(at, "mix", iteration, mixed=mixed)

    def graph(self, iteration: int, alive: Sequence[int], void: bool) -> None:
        """The graph has been closed around those that are not alive, or opened again."""
        self._row(
            time.time(), "graph", iteration, "void" if void else "", " ".join(map(str, alive))
        )

    def gradient(self, iteration: int, values: Flat) -> None:
        """Keep a gradient."""
        if self._gradients.wants(iteration):
            self._try(lambda: self._gradients.write(iteration, values))

    def _cut_of(self, at: float) -> int:
        return int(at // self._every_s) if self._every_s else 0

    def _pass_cut(self, before: Flat, at: float) -> None:
        """An event at `at` changes `before`. Where the time of a snapshot has passed since the
        event before, they are the parameters of that time.
        """
        cut = self._cut_of(at)
        if cut > self._cut:
            self._cut = cut
            if self._snapshots.wants(cut):
                self._try(lambda: self._snapshots.write(cut, before))

    def _row(self, at: float, kind: str, iteration: int, norm: str = "", mixed: str = "") -> None:
        self._try(lambda: self._events.write(f"{at!r},{kind},{iteration},{norm},{mixed}\n"))

    def _try(self, write: object) -> None:
        try:
            write()  # type: ignore[operator]
        except OSError as error:
            if not self._failing:
                log.warning(
                    "what gossip does cannot be recorded (%s): seedbed analyze will miss it",
                    error,
                )
            self._failing = True


def _set_aside(folder: Path, kind: str) -> None:
    marker = folder / "learners"
    if not marker.exists() or marker.read_text() == kind:
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(aside)
    log.info("gossip.replicas or snapshot_every_s is another now: what was recorded before is "
    "in %s",
             aside)  # fmt: skip


def _last_iteration(path: Path) -> int:
    """The local iteration that the file ends with, 0 where there is none. A row that a killed
    process has left half written is ended.
    """
    try:
        with path.open("r+") as file:
            rows = file.read().split("\n")
            if rows[-1]:
                file.seek(0)
                file.truncate()
                file.write("\n".join(rows[:-1]) + "\n")
                rows[-1] = ""
    except FileNotFoundError:
        return 0
    iterations = [int(row.split(",")[2]) for row in rows[1:] if row]
    return max(iterations, default=0)
