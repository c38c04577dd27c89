"""A sequence buffer in memory-mapped files on a volume, which survives its process.

One file an array, and `replay.json`, which says what they are. All of them have their full size
from the start: a volume that is too small is an error then, and never a SIGBUS later.

An item is emptied (key -1), written, sealed with a checksum, and gets its key last. The kernel
keeps what a killed process wrote, in that order: what it was in the middle of belongs to nobody.
After a crash of the machine some pages are older than others; the checksums find those.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import os
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.buffer import SequenceBuffer, stored_arrays
from seedbed.replay.incarnations import Incarnation, IncarnationHistory
from seedbed.replay.sequence import SequenceSpec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import atomic_write, lock_file
from seedbed.spec import ArraySpec

log = logging.getLogger(__name__)

FORMAT = 1
LIVES = 1000  # of a shard that are remembered; keys of older ones are stale
_JSON, _LOCK = "replay.json", "lock"
# Priorities change, and nothing breaks where one is lost.
_UNSEALED = ("priority", "key", "checksum")


def file_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """What the files hold of one item."""
    return {**stored_arrays(spec), "checksum": ArraySpec((), "uint32")}


def files_bytes(spec: SequenceSpec, capacity: int) -> int:
    """Disk that the files take, in bytes."""
    return capacity * sum(array.row_bytes for array in file_arrays(spec).values())


class Description(NamedTuple):
    """What `replay.json` says."""

    spec: SequenceSpec
    capacity: int
    lives: list[Incarnation]
    complete: bool  # False: it was killed while it made the files


class FileBuffer(SequenceBuffer):
    """As `SequenceBuffer`. `open_buffer` makes it.

    Attributes:
        damaged: sequences that were found damaged, and dropped, when the files were opened.
        incarnations: this start, and those before.
    """

    def __init__(self, directory: Path, lock: int, found: Description, exponent: float) -> None:
        self._maps: list[mmap.mmap] = []
        self._lock_file: int | None = lock
        self._checksum: NDArray[np.uint32]
        arrays = {
            name: self._map(_path(directory, name), found.capacity, array)
            for name, array in file_arrays(found.spec).items()
        }
        self._sealed = [name for name in arrays if name not in _UNSEALED]
        self._checksum = arrays.pop("checksum")
        self.damaged = self._drop_damaged(arrays)
        owned = int(np.count_nonzero(arrays["key"] != -1))
        super().__init__(found.spec, found.capacity, exponent, arrays)
        self.damaged += owned - self.ring.size  # too old to live
        if self.damaged:
            log.warning("%s: %d damaged sequences are dropped", directory, self.damaged)
        self.incarnations = IncarnationHistory(found.lives[1 - LIVES :], self.ring.next_key)
        _describe(directory, found._replace(lives=self.incarnations.lives))

    def _map(self, path: Path, capacity: int, array: ArraySpec) -> NDArray[Any]:
        """The array of a file; of one without bytes, in memory."""
        if not array.row_bytes:
            return np.zeros((capacity, *array.shape), array.dtype)
        size = capacity * array.row_bytes
        try:
            with path.open("r+b") as file:
                if os.fstat(file.fileno()).st_size != size:
                    raise SeedbedError(
                        ExitCode.REPLAY_FILES,
                        f"{path} has {os.fstat(file.fileno()).st_size} bytes instead of {size}: "
                        "name another directory, or delete this one",
                    )
                mapped = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise SeedbedError(
                ExitCode.REPLAY_FILES, f"cannot use {path}: {error.strerror or error}"
            ) from error
        self._maps.append(mapped)
        return np.frombuffer(mapped, array.dtype).reshape(capacity, *array.shape)

    def _drop_damaged(self, arrays: dict[str, NDArray[Any]]) -> int:
        """Empty the items that are not what was sealed. Returns how many."""
        key = arrays["key"]
        items = np.flatnonzero(key != -1)
        cores = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(cores, "checksums") as pool:  # crc32 holds up no other thread

            def whole(items: NDArray[np.int64]) -> list[bool]:
                return [
                    bool(self._sum(arrays, item, int(key[item])) == self._checksum[item])
                    for item in items.tolist()
                ]

            found = [pool.submit(whole, part) for part in np.array_split(items, 8 * cores)]
            good = np.array([one for part in found for one in part.result()], np.bool_)
        good &= (key[items] >= 0) & (key[items] % len(key) == items)
        key[items[~good]] = -1
        return int(np.count_nonzero(~good))

    def _sum(self, arrays: dict[str, NDArray[Any]], item: int, key: int) -> int:
        """The checksum of an item that has, or will have, this key."""
        found = zlib.crc32(key.to_bytes(8, "little", signed=True))
        for name in self._sealed:
            row = arrays[name][item : item + 1]
            if row.size:
                found = zlib.crc32(row.data, found)
        return found

    def _seal(self, items: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        self._write_checksums(items, keys)
        super()._seal(items, keys)

    def _write_checksums(self, items: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        for item, key in zip(items.tolist(), keys.tolist(), strict=True):
            self._checksum[item] = self._sum(self._arrays, item, key)

    def restore(self, state: Any) -> None:
        """See `SequenceBuffer`. Killed in the middle of it, what is half written is damaged."""
        super().restore(state)
        items = np.flatnonzero(self.ring.key >= 0)
        self._write_checksums(items, self.ring.key[items])

    def prefault(self, items: NDArray[np.int64]) -> None:
        """Have the frames of items [N], and of those before them, in memory.

        A page that is read from disk while somebody holds the interpreter's lock stops everybody.
        """
        frames = self._arrays["frames"].reshape(self.capacity, -1).view(np.uint8)
        for keys in self.ring.hops(self.ring.key[items]):
            frames[self.ring.item(keys), :: mmap.PAGESIZE].max(initial=0)

    def flush(self) -> None:
        """Have everything on the disk, so that it survives a crash of the machine too."""
        for mapped in self._maps:
            mapped.flush()

    def close(self) -> None:
        """Flush, and let others use the directory."""
        self.flush()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None


def open_buffer(directory: Path, spec: SequenceSpec, capacity: int, exponent: float) -> FileBuffer:
    """The buffer in this directory, which is made where there is none.

    Raises:
        SeedbedError: REPLAY_FILES: the directory is another process's, holds another buffer, or
            the volume is too small. Nothing that was there has changed.
        ValueError: capacity or exponent cannot be.
    """
    if capacity < 1:
        raise ValueError(f"capacity {capacity} must be at least 1")
    lock = _lock(directory)
    try:
        found = describe(directory)
        if found is None:
            _refuse_leftovers(directory, spec)
        elif found.complete and (found.spec, found.capacity) != (spec, capacity):
            raise SeedbedError(
                ExitCode.REPLAY_FILES,
                f"{directory} holds {words(found.spec, found.capacity)}, and this replay is to "
                f"hold {words(spec, capacity)}: name another directory, or delete this one",
            )
        if found is None or not found.complete:
            found = Description(spec, capacity, [], True)
            _create(directory, found)
        buffer = FileBuffer(directory, lock, found, exponent)
    except BaseException:
        os.close(lock)
        raise
    log.info("%s: %d of %d sequences are there, %d can be drawn", directory, buffer.ring.size,
             capacity, buffer.sampleable)  # fmt: skip
    return buffer


def words(spec: SequenceSpec, capacity: int | None = None) -> str:
    """A spec for people."""
    many = "" if capacity is None else f"{capacity} "
    of = f"{spec.environment} ({spec.actions} actions), " if spec.environment else ""
    return (
        f"{many}sequences of {of}{spec.burn_in} + {spec.steps} + {spec.lookahead} steps of "
        f"{spec.observation}, frame stack {spec.frame_stack}, state {spec.state_size}"
    )


def describe(directory: Path) -> Description | None:
    """What the files in a directory are; None where there are none.

    Raises:
        SeedbedError: REPLAY_FILES: `replay.json` cannot be understood.
    """
    path = directory / _JSON
    try:
        tree = json.loads(path.read_text())
        if tree["format"] != FORMAT:
            raise SeedbedError(
                ExitCode.REPLAY_FILES,
                f"{path} is of format {tree['format']}, and this Seedbed reads {FORMAT}: name "
                "another directory, or delete this one",
            )
        return Description(
            SequenceSpec.from_json(tree["spec"]),
            int(tree["capacity"]),
            [Incarnation(int(life[0]), int(life[1])) for life in tree["lives"]],
            bool(tree["complete"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise SeedbedError(
            ExitCode.REPLAY_FILES,
            f"cannot understand {path} ({type(error).__name__}: {error}): name another directory, "
            "or delete this one",
        ) from error


def _describe(directory: Path, description: Description) -> None:
    """Write `replay.json`, whole or not at all."""
    tree = {
        "format": FORMAT,
        "spec": description.spec.to_json(),
        "capacity": description.capacity,
        "lives": [list(life) for life in description.lives],
        "complete": description.complete,
    }
    try:
        atomic_write(directory / _JSON, json.dumps(tree), fsync=True)
    except OSError as error:
        raise SeedbedError(
            ExitCode.REPLAY_FILES, f"cannot write {directory / _JSON}: {error.strerror}"
        ) from error


def _lock(directory: Path) -> int:
    """Be the only one that uses the directory, until the process ends or closes this."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return lock_file(directory / _LOCK)
    except BlockingIOError:
        raise SeedbedError(
            ExitCode.REPLAY_FILES,
            f"another process has its replay in {directory}: each needs a directory of its own",
        ) from None
    except OSError as error:
        raise SeedbedError(
            ExitCode.REPLAY_FILES, f"cannot use {directory}: {error.strerror}"
        ) from error


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}.bin"


def _refuse_leftovers(directory: Path, spec: SequenceSpec) -> None:
    """Files without a description may be somebody's sequences: never written over."""
    for name in file_arrays(spec):
        if _path(directory, name).exists():
            raise SeedbedError(
                ExitCode.REPLAY_FILES,
                f"{_path(directory, name)} is there and {_JSON} is not: name another directory, "
                "or delete this one",
            )


def _create(directory: Path, wanted: Description) -> None:
    """Make the files, all their bytes included. Where that fails none of them is left."""
    arrays = file_arrays(wanted.spec)
    for name in arrays:  # of one who was killed here
        _path(directory, name).unlink(missing_ok=True)
    _check_room(directory, wanted)
    _describe(directory, wanted._replace(complete=False))
    try:
        for name, array in arrays.items():
            with _path(directory, name).open("xb") as file:
                if array.row_bytes:
                    os.posix_fallocate(file.fileno(), 0, wanted.capacity * array.row_bytes)
                if name == "key":
                    np.full(wanted.capacity, -1, array.dtype).tofile(file)
                os.fsync(file.fileno())
        _describe(directory, wanted)
    except OSError as error:
        for name in arrays:
            with suppress(OSError):
                _path(directory, name).unlink(missing_ok=True)
        with suppress(OSError):
            (directory / _JSON).unlink(missing_ok=True)
        raise _no_room(directory, wanted, error.strerror) from error


def _check_room(directory: Path, wanted: Description) -> None:
    if files_bytes(wanted.spec, wanted.capacity) > shutil.disk_usage(directory).free:
        raise _no_room(directory, wanted, "it does not fit")


def _no_room(directory: Path, wanted: Description, cause: str | None) -> SeedbedError:
    needed = files_bytes(wanted.spec, wanted.capacity)
    free = shutil.disk_usage(directory).free
    item = files_bytes(wanted.spec, 1)
    return SeedbedError(
        ExitCode.REPLAY_FILES,
        f"{directory} has no room for {words(wanted.spec, wanted.capacity)}: {gib(needed)}, and "
        f"{gib(free)} are free ({cause}): enlarge the volume, or hold at most "
        f"{math.floor(0.95 * free / item)} sequences",
    )


def gib(size: float) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.3g} GiB" if size >= 2**27 else f"{size / 2**20:.3g} MiB"
