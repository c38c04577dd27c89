"""What the learners of a set tell: status and rows, copied into the folder of the set."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Protocol

from seedbed.numbers import check_number
from seedbed.runs.layout import learner_directories, learner_directory
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.files import atomic_write, read_object
from seedbed.runtime.http import get_json
from seedbed.runtime.shortage import NO_ROOM
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Role, Tokens
from seedbed.sets.remote_rows import TIMEOUT_S, RowsReader

log = logging.getLogger(__name__)

# Learners that are read at the same time, and the longest wait for all of one round.
_AT_ONCE, _DEADLINE_S = 8, 8.0


class Learner(Protocol):
    """One learner of a run."""

    def status(self) -> dict[str, Any]:
        """Return the object of /status.

        Raises:
            OSError, ValueError, SeedbedError: It does not answer, or with something else.
        """

    def copy(self, folder: Path) -> bool:
        """Bring copies of its files up to date; return whether they are those of its end.

        Raises:
            OSError, ValueError, SeedbedError: As of `status`, or a file cannot be written.
        """


class RemoteLearner:
    """A learner at an address.

    Args:
        url: Such as `http://pong-learner-0.pong-learner:9090`.
        tokens: With the secret of an observer; None: none is sent.
        keeps_best: Copy the best checkpoint of its end, too.
    """

    def __init__(self, url: str, tokens: Tokens | None, keeps_best: bool = False) -> None:
        self._url, self._tokens = url, tokens
        self._rows = RowsReader(url, tokens, keeps_best=keeps_best)

    def status(self) -> dict[str, Any]:
        """Return the object of /status."""
        found = get_json(f"{self._url}/status", TIMEOUT_S, self._tokens, Role.OBSERVER)
        try:
            for name in ("env_frames", "dollars", "seconds"):
                check_number(name, found["counters"][name])
            check_number("time", found["time"])
            check_number("eta", (found.get("eta") or {}).get("seconds") or 0.0)
            check_number("stop.env_frames", found["stop"]["env_frames"])
            if not isinstance(found["state"], str):
                raise TypeError("state")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self._url}/status is none of a learner: {error}") from error
        return dict(found)

    def copy(self, folder: Path) -> bool:
        """Bring copies of its files up to date."""
        return self._rows.copy(folder)


class Visits:
    """Reads the learners that are there, each by one thread at a time.

    `rows_read` in the status of a learner's folder is true where the copies are those of its end.
    Several learners of a run have a folder each in the run's, as on one machine.

    Args:
        folder: The folder of the set.
        learner: Returns the learner at an address.
    """

    def __init__(self, folder: Path, learner: Callable[[str], Learner]) -> None:
        self._folder, self._learner = folder, learner
        self._known: dict[Path, Learner] = {}  # by their folders
        self._open: dict[Path, Future[None]] = {}
        self._told: dict[Path, str] = {}  # why a learner is not read, as last logged
        self._short: dict[Path, str] = {}  # why its copies cannot be written
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rows")

    def visit(self, urls: Mapping[str, Sequence[str]]) -> None:
        """Read the learners of some runs, for eight seconds at the most.

        Args:
            urls: Addresses of the learners by rank, by the name of the run.
        """
        reads = []
        for name, addresses in urls.items():
            run = self._run(name)
            for rank, url in enumerate(addresses):
                folder = learner_directory(run, rank) if len(addresses) > 1 else run
                if folder not in self._known:
                    self._known[folder] = self._learner(url)
                if folder not in self._open or self._open[folder].done():
                    self._open[folder] = self._pool.submit(self._read, folder, self._known[folder])
                reads.append(self._open[folder])
        wait(reads, _DEADLINE_S)

    def begin(self, name: str) -> None:
        """Take note that a run goes on, so that the copies are no longer those of its end.

        Raises:
            OSError: Its status cannot be written.
        """
        run = self._run(name)
        for folder in learner_directories(run, earlier=True) or [run]:
            file = folder / "status.json"
            status = read_object(file)
            if status.get("rows_read"):
                atomic_write(file, json.dumps({**status, "rows_read": False}) + "\n")

    def forget(self, name: str) -> None:
        """Let a run go, whose next learners are others."""
        run = self._run(name)
        for folder in [one for one in self._known if one == run or one.parent == run]:
            self._known.pop(folder)
            self._open.pop(folder)
            self._told.pop(folder, None)
            self._short.pop(folder, None)

    @property
    def shortage(self) -> str:
        """Why a copy cannot be written; empty where each can."""
        return next(iter(list(self._short.values())), "")

    def _run(self, name: str) -> Path:
        return self._folder / "runs" / name

    def _read(self, folder: Path, learner: Learner) -> None:
        try:
            status = learner.status()
            is_read = learner.copy(folder)  # makes the folder
            status["rows_read"] = is_read or _was_read(folder, status)
            atomic_write(folder / "status.json", json.dumps(status) + "\n")
            self._told.pop(folder, None)
            self._short.pop(folder, None)
        except (OSError, ValueError, SeedbedError) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                self._short[folder] = error.strerror or str(error)
            why = printable(str(error))[:200]
            if self._told.get(folder) != why:  # each round finds it again, while a learner starts
                self._told[folder] = why
                place = folder.relative_to(self._folder / "runs")
                log.info("%s: its learner is not read: %s", place, why)


def _was_read(folder: Path, status: Mapping[str, Any]) -> bool:
    """Return whether the copies were those of the end of the learner with this status.

    One that is told to leave brings its bill up to date, and goes: nothing else is new.
    """
    before = read_object(folder / "status.json")
    same = all(status.get(key) == before.get(key) for key in ("process", "over"))
    return same and before.get("rows_read") is True
