"""Store of a run's checkpoints: keeps the newest and the best, skips damaged ones."""

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from seedbed.checkpoints.files import open_files
from seedbed.checkpoints.format import (
    Checkpoint,
    CheckpointReadError,
    DamagedCheckpointError,
    decode,
    encode,
)
from seedbed.checkpoints.owner import Claim
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import TEMPORARY
from seedbed.runtime.shortage import cure, will_pass

BEST = "best.safetensors"
_NAME = re.compile(r"checkpoint-\d{12,}\.safetensors")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SavedCheckpoint:
    """Path, size and time of a checkpoint that was written."""

    path: str
    bytes: int
    seconds: float


class CheckpointStore:
    """Checkpoints of one run. One process writes; any number may read at the same time.

    Args:
        directory: Local path, or a URL that fsspec reaches.
        keep: Newest checkpoints that are kept; `best` is kept apart from them.

    Attributes:
        pinned: Name of a file that is in use, and so is not deleted.
        claim: Right to write, which is checked before each checkpoint; None where the folder is
            within the run's own.
    """

    def __init__(self, directory: str, keep: int = 2) -> None:
        self.directory = directory
        self.keep = keep
        self.pinned: str | None = None
        self.claim: Claim | None = None
        self._files = open_files(directory)
        self._damaged: set[str] = set()
        # Two threads of the learner may save at the same time, a checkpoint and `best`.
        self._writing = threading.Lock()

    def names(self) -> list[str]:
        """List the file names, oldest first, without `best`.

        Raises:
            SeedbedError: CHECKPOINT_READ: the directory cannot be listed.
        """
        try:
            names = self._files.names()
        except OSError as error:
            raise CheckpointReadError(
                f"cannot list the checkpoints in {self.directory}: {error}"
            ) from error
        return sorted((name for name in names if _NAME.fullmatch(name)), key=_updates)

    def has_best(self) -> bool:
        """Tell whether `best` was ever saved."""
        return BEST in self._files.names()

    def save(
        self, arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any], updates: int
    ) -> SavedCheckpoint:
        """Write a checkpoint, and delete the oldest ones beyond `keep`.

        Args:
            arrays: As `Checkpoint.arrays`, of any shape.
            meta: As `Checkpoint.meta`.
            updates: Number of the checkpoint.

        Raises:
            SeedbedError: CHECKPOINT_WRITE: the disk is full or the like, and what helps; older
                checkpoints are untouched. RUN_DIRECTORY: another run has taken the folder over.
        """
        if self.claim is not None:
            self.claim.check()
        name = f"checkpoint-{updates:012d}.safetensors"
        saved = self._write(name, arrays, meta)
        try:
            self._damaged.discard(name)
            for other in self.names():
                # The run went back to an older checkpoint: a newer one is kept under another
                # name, because it would count as newer than the one that was just saved.
                if other in self._damaged or _updates(other) > updates:
                    path = f"{self.directory}/{other}"
                    log.warning("%s is renamed to .aside: the run continues without it", path)
                    self._files.rename(other, f"{other}.aside")
            self._damaged.clear()
            for old in self.names()[: -self.keep]:
                if old != self.pinned:
                    self._files.remove(old)
        except (OSError, SeedbedError) as error:
            # The new checkpoint is safe; files that could not be deleted only take room.
            log.warning("old checkpoints in %s could not be deleted: %s", self.directory, error)
        return saved

    def save_best(self, name: str, mean: float) -> None:
        """Write `best`, a copy of the checkpoint that `read` finds by a name.

        Args:
            name: As of `read`.
            mean: Mean return of its evaluation.
        """
        best = self.read(name)
        self._write(BEST, best.arrays, {**best.meta, "best_evaluation": mean})

    def best_evaluation(self) -> float | None:
        """Return the mean return of the evaluation of `best`; None where there is none to keep."""
        try:
            mean = self.read("best").meta["best_evaluation"] if self.has_best() else None
        except (SeedbedError, OSError) as error:
            log.warning("%s; the next evaluation replaces it", error)
            return None
        return None if mean is None else float(mean)

    def newest(self) -> Checkpoint | None:
        """Read the newest whole checkpoint; return None where there is none.

        A damaged checkpoint is skipped with a warning.

        Raises:
            SeedbedError: CHECKPOINT_READ: all checkpoints are damaged, or this process has no
                memory or descriptor to read one.
        """
        # A writer may delete a file that was just listed; a newer one is there then.
        for _ in range(3):
            reasons: list[str] = []
            names = self.names()
            for name in reversed(names):
                try:
                    return self._read(name)
                except FileNotFoundError:
                    continue
                except (DamagedCheckpointError, OSError, MemoryError) as error:
                    if will_pass(error):
                        raise self._unreadable(name, error) from error
                    reasons.append(f"{self.directory}/{name}: {error}")
                    self._damaged.add(name)
                    log.warning("checkpoint %s/%s is skipped: %s", self.directory, name, error)
            if reasons:
                raise CheckpointReadError(
                    "all checkpoints are damaged:\n" + "\n".join(reasons) + self._way_out()
                )
            if not names:
                return None
        raise CheckpointReadError(
            f"the checkpoints in {self.directory} vanish while they are read: is another process "
            "deleting them?"
        )

    def read(self, name: str) -> Checkpoint:
        """Read one checkpoint.

        Args:
            name: `newest`, `best`, a file name, or a number of updates in digits.

        Raises:
            SeedbedError: CHECKPOINT_READ: it is not there (the message lists what is), or it is
                damaged.
        """
        if name == "newest":
            newest = self.newest()
            if newest is None:
                raise self._not_found("any checkpoint")
            return newest
        if name == "best":
            file = BEST
        elif name.isdecimal():
            file = f"checkpoint-{int(name):012d}.safetensors"
        else:
            file = name.rsplit("/", 1)[-1]
        try:
            return self._read(file)
        except FileNotFoundError as error:
            raise self._not_found(file) from error
        except (DamagedCheckpointError, OSError, MemoryError) as error:
            raise self._unreadable(file, error) from error

    def archive(self) -> str | None:
        """Move all checkpoints into a subdirectory `aside-N`, and return its path.

        Return None where there are no checkpoints.
        """
        names = self._own()
        if not names:
            return None
        number = 1
        while open_files(f"{self.directory}/aside-{number}").names():
            number += 1
        for name in names:
            self._files.rename(name, f"aside-{number}/{name}")
        return f"{self.directory}/aside-{number}"

    def delete_all(self) -> list[str]:
        """Delete all checkpoints of this directory, `best` too; return their names."""
        names = self._own()
        for name in names:
            self._files.remove(name)
        return names

    def _own(self) -> list[str]:
        return self.names() + [name for name in self._files.names() if name == BEST]

    def _read(self, name: str) -> Checkpoint:
        arrays, meta = decode(self._files.read(name))
        return Checkpoint(f"{self.directory}/{name}", arrays, meta)

    def _write(
        self, name: str, arrays: Mapping[str, NDArray[Any]], meta: dict[str, Any]
    ) -> SavedCheckpoint:
        try:
            content = encode(arrays, meta)
            start = time.monotonic()
            with self._writing:
                # Delete files that a killed writer left behind.
                for left in self._files.names():
                    if left.startswith(TEMPORARY):
                        self._files.remove(left)
                self._files.write(name, content)
        except (OSError, MemoryError) as error:
            size = sum(array.nbytes for array in arrays.values())
            raise SeedbedError(
                ExitCode.CHECKPOINT_WRITE,
                f"cannot write the checkpoint {self.directory}/{name} of {size} bytes: "
                f"{str(error) or type(error).__name__}; the older ones are untouched; "
                f"{cure(error)}",
            ) from error
        seconds = time.monotonic() - start
        return SavedCheckpoint(f"{self.directory}/{name}", len(content), seconds)

    def _unreadable(self, name: str, error: Exception) -> SeedbedError:
        what_helps = f"; {cure(error)}" if will_pass(error) else self._way_out()
        return CheckpointReadError(
            f"cannot read the checkpoint {self.directory}/{name}: {error}{what_helps}"
        )

    def _not_found(self, what: str) -> SeedbedError:
        return CheckpointReadError(f"{self.directory} does not hold {what}{self._way_out()}")

    def _way_out(self) -> str:
        there = [_updates(name) for name in self.names()]
        best = "best, " if self.has_best() else ""
        return f"; there are: {best}{', '.join(map(str, there)) or 'none'}"


def _updates(name: str) -> int:
    """Return the updates in a name that matches `_NAME`."""
    return int(name.removeprefix("checkpoint-").removesuffix(".safetensors"))
