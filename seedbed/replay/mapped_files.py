"""Sequence buffer in memory-mapped files on a volume, which outlasts its process.

One file an array, and `replay.json`, which describes them. All files have their full size from
the start, so a volume that is too small is an error at the start, and never a SIGBUS later.

An item is emptied (key -1), written, committed with a checksum, and gets its key last. The kernel
keeps what a killed process wrote, in that order, so a half-written item has no key. After a crash
of the machine some pages are older than others; the checksums find the items with such pages.
"""

import errno
import json
import logging
import math
import mmap
import os
import shutil
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.numbers import Bounds
from seedbed.replay.buffer import SequenceBuffer, stored_arrays
from seedbed.replay.incarnations import Incarnation, new_incarnation
from seedbed.replay.numbers import wrong_items
from seedbed.replay.ring import Ring
from seedbed.replay.sequence import SequenceSpec, describe_spec, format_bytes
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import atomic_write, make_directory, sync_directory
from seedbed.runtime.locks import Lock, LockHeld
from seedbed.runtime.shortage import cure
from seedbed.spec import ArraySpec

log = logging.getLogger(__name__)

FORMAT = 1
# Sequences whose numbers are looked at together.
_BLOCK = 256
# Incarnations of a shard that are remembered; keys of older ones are stale.
INCARNATIONS = 1000
_JSON, _LOCK = "replay.json", "lock"
_WAY_OUT = "name another directory, or delete this one"
# A file that must not become so large has no room either.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Without a checksum: priorities change, and nothing breaks where one is lost.
_UNCHECKED = ("priority", "key", "checksum")


def file_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """Return what the files hold of one item."""
    return {**stored_arrays(spec), "checksum": ArraySpec((), "uint32")}


def files_bytes(spec: SequenceSpec, capacity: int) -> int:
    """Return the disk space of the files, in bytes."""
    return capacity * sum(array.row_bytes for array in file_arrays(spec).values())


@dataclass(frozen=True)
class Description:
    """Contents of `replay.json`, but for its format."""

    spec: SequenceSpec
    capacity: int
    lives: list[Incarnation]  # of the shard, the oldest first
    complete: bool  # False: the process was killed while it made the files


class FileBuffer(SequenceBuffer):
    """Sequence buffer in files; `open_buffer` makes it.

    Attributes:
        corrupt: Sequences that were found corrupt, or with wrong numbers, and dropped.
        incarnations: The earlier starts of the shard, and this one.

    Args:
        directory: Folder of the files.
        lock: Lock of the folder.
        found: Contents of `replay.json`.
        exponent: α, not negative.
    """

    def __init__(self, directory: Path, lock: Lock, found: Description, exponent: float) -> None:
        self._maps: list[np.memmap[Any, Any]] = []
        self._lock_file: Lock | None = lock
        self._checksum: NDArray[np.uint32]
        arrays = {
            name: self._map(_path(directory, name), found.capacity, array)
            for name, array in file_arrays(found.spec).items()
        }
        self._checked = [name for name in arrays if name not in _UNCHECKED]
        self._checksum = arrays.pop("checksum")
        self.corrupt = self._drop_corrupt(arrays)
        stored = int(np.count_nonzero(arrays["key"] != -1))
        super().__init__(found.spec, found.capacity, exponent, arrays)
        self.corrupt += stored - self.ring.size  # too old to be stored
        if self.corrupt:
            log.warning("%s: %d corrupt sequences are dropped", directory, self.corrupt)
        self.bytes = files_bytes(found.spec, found.capacity)
        earlier = found.lives[1 - INCARNATIONS :]
        self.incarnations = [*earlier, new_incarnation(self.ring.next_key)]
        self._directory, self._description = directory, replace(found, lives=self.incarnations)
        _write_description(directory, self._description)

    def _map(self, path: Path, capacity: int, array: ArraySpec) -> NDArray[Any]:
        """Return the array of a file; an array without bytes has no file and lies in memory."""
        if not array.row_bytes:
            return np.zeros((capacity, *array.shape), array.dtype)
        size, wanted = path.stat().st_size, capacity * array.row_bytes
        if size != wanted:
            raise _refusal(f"{path} has {size} bytes instead of {wanted}: {_WAY_OUT}")
        mapped = np.memmap(path, array.dtype, "r+", shape=(capacity, *array.shape))
        self._maps.append(mapped)
        return np.asarray(mapped)  # indexing a memmap is slower

    def _drop_corrupt(self, arrays: dict[str, NDArray[Any]]) -> int:
        """Empty the items whose checksum is wrong; return how many."""
        key = arrays["key"]
        items = np.flatnonzero(key != -1)
        cores = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(cores, "checksums") as pool:  # crc32 releases the GIL

            def are_intact(items: NDArray[np.int64]) -> NDArray[np.bool_]:
                wanted = [self._crc(arrays, item, int(key[item])) for item in items.tolist()]
                return np.equal(self._checksum[items], np.array(wanted, np.uint32))

            intact = np.concatenate(list(pool.map(are_intact, np.array_split(items, 8 * cores))))
        intact &= (key[items] >= 0) & (key[items] % len(key) == items)
        key[items[~intact]] = -1
        return int(np.count_nonzero(~intact))

    def drop_wrong(self, bounds: Bounds) -> None:
        """Drop sequences whose numbers are not allowed, such as those of an earlier release.

        Args:
            bounds: Largest magnitudes of rewards and float frames.
        """
        stored, arrays = np.flatnonzero(self.ring.key >= 0), self._arrays
        wrong = [
            item
            for first in range(0, len(stored), _BLOCK)
            for item in wrong_items(self.spec, arrays, stored[first : first + _BLOCK], bounds)
        ]
        if not wrong:
            return
        text = "%d sequences with numbers that are not allowed are dropped"
        log.warning(text, len(wrong))
        self.corrupt += len(wrong)
        # Keys that were given away are not given away again.
        next_key, inserted = self.ring.next_key, self.ring.inserted
        arrays["key"][wrong] = -1
        self.ring = Ring(self.capacity, self.spec.predecessors)
        self._rebuild_index()
        self.ring.next_key, self.ring.inserted = next_key, inserted

    def _crc(self, arrays: dict[str, NDArray[Any]], item: int, key: int) -> int:
        """Return the checksum of an item that has, or will have, this key."""
        crc = zlib.crc32(key.to_bytes(8, "little", signed=True))
        for name in self._checked:
            row = arrays[name][item : item + 1]
            if row.size:
                crc = zlib.crc32(row.data, crc)
        return crc

    @override
    def _commit(self, items: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        for item, key in zip(items.tolist(), keys.tolist(), strict=True):
            self._checksum[item] = self._crc(self._arrays, item, key)
        super()._commit(items, keys)

    def prefault(self, items: NDArray[np.int64]) -> None:
        """Read the frames of items [N] and of their predecessors into memory.

        A page fault under the interpreter's lock would stop every thread, so that this reads the
        pages ahead of the copy.

        Args:
            items: [N].
        """
        frames = self._arrays["frames"].reshape(self.capacity, -1).view(np.uint8)
        for keys in self.ring.predecessor_keys(self.ring.key[items]):
            frames[self.ring.item(keys), :: mmap.PAGESIZE].max(initial=0)

    @override
    def discard(self) -> None:
        # A directory whose files were not completed is made anew.
        _write_description(self._directory, replace(self._description, complete=False))
        self.close()

    @override
    def close(self) -> None:
        # Written to the disk, so that everything survives a crash of the machine too.
        for mapped in self._maps:
            mapped.flush()
        if self._lock_file is not None:
            self._lock_file.release()
            self._lock_file = None


def open_buffer(directory: Path, spec: SequenceSpec, capacity: int, exponent: float) -> FileBuffer:
    """Open the buffer in a directory; make its files where there are none.

    Args:
        directory: Folder of the files, used by one process at a time.
        spec: Sizes of a sequence.
        capacity: Sequences, at least 1.
        exponent: α, not negative.

    Raises:
        SeedbedError: REPLAY_FILES: another process uses the directory, the directory holds another
            buffer, or the volume is too small. No existing file has changed.
    """
    lock = _lock(directory)
    try:
        found = read_description(directory)
        if found is None:
            _refuse_leftovers(directory, spec)
        elif found.complete and (found.spec, found.capacity) != (spec, capacity):
            raise _refusal(
                f"{directory} holds {describe_spec(found.spec, found.capacity)}, and this replay "
                f"is to hold {describe_spec(spec, capacity)}: {_WAY_OUT}"
            )
        if found is None or not found.complete:
            found = Description(spec, capacity, [], True)
            _create(directory, found)
        buffer = FileBuffer(directory, lock, found, exponent)
    except OSError as error:
        lock.release()
        used = error.filename or directory
        sizes = f"{describe_spec(spec, capacity)}, {format_bytes(files_bytes(spec, capacity))}"
        raise _refusal(
            f"cannot use {used} for {sizes}: {error.strerror or error}; {cure(error)}"
        ) from error
    except BaseException:
        lock.release()
        raise
    size, text = buffer.ring.size, "%s: %d of %d sequences are stored, %d can be sampled"
    log.info(text, directory, size, capacity, buffer.sampleable)
    return buffer


def check_directory(directory: Path) -> None:
    """Check, before there is anything to store, that a directory can be locked and written to.

    Args:
        directory: Folder of the files; made where it is missing.

    Raises:
        SeedbedError: REPLAY_FILES: it cannot be used, and why.
    """
    lock = _lock(directory)
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise _refusal(f"cannot use {directory}: {error.strerror}; {cure(error)}") from error
    finally:
        lock.release()


def read_description(directory: Path) -> Description | None:
    """Read `replay.json`; None where a directory has none.

    Raises:
        SeedbedError: REPLAY_FILES: `replay.json` cannot be read.
    """
    path = directory / _JSON
    try:
        tree = json.loads(path.read_text())
        if tree["format"] != FORMAT:
            raise _refusal(
                f"{path} is of format {tree['format']}, and this Seedbed reads {FORMAT}: {_WAY_OUT}"
            )
        lives = [Incarnation(int(one[0]), int(one[1])) for one in tree["lives"]]
        spec = SequenceSpec.from_json(tree["spec"])
        return Description(spec, int(tree["capacity"]), lives, bool(tree["complete"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise _refusal(
            f"cannot understand {path} ({type(error).__name__}: {error}): {_WAY_OUT}"
        ) from error


def _write_description(directory: Path, description: Description) -> None:
    """Write `replay.json`, whole or not at all."""
    tree = {"format": FORMAT, **asdict(description)}
    atomic_write(directory / _JSON, json.dumps(tree))


def _lock(directory: Path) -> Lock:
    """Lock the directory until the process ends or releases the lock."""
    try:
        make_directory(directory)
        return Lock(directory / _LOCK)
    except LockHeld as holder:
        raise _refusal(
            f"the replay in {directory} is in use by {holder}, or name another directory: each "
            "replay needs one of its own"
        ) from None
    except OSError as error:
        raise _refusal(f"cannot use {directory}: {error.strerror}; {cure(error)}") from error


def _refusal(text: str) -> SeedbedError:
    return SeedbedError(ExitCode.REPLAY_FILES, text)


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}.bin"


def _refuse_leftovers(directory: Path, spec: SequenceSpec) -> None:
    """Refuse files without a description: they may be another replay's sequences."""
    for name in file_arrays(spec):
        if _path(directory, name).exists():
            raise _refusal(f"{_path(directory, name)} is there and {_JSON} is not: {_WAY_OUT}")


def _create(directory: Path, wanted: Description) -> None:
    """Make the files in their full size. Removes all of them if that fails."""
    arrays = file_arrays(wanted.spec)
    # Remove the files of a process that was killed here.
    for name in arrays:
        _path(directory, name).unlink(missing_ok=True)
    if files_bytes(wanted.spec, wanted.capacity) > shutil.disk_usage(directory).free:
        raise _no_space(directory, wanted, "it does not fit")
    _write_description(directory, replace(wanted, complete=False))
    try:
        for name, array in arrays.items():
            with _path(directory, name).open("xb") as file:
                if array.row_bytes:
                    os.posix_fallocate(file.fileno(), 0, wanted.capacity * array.row_bytes)
                if name == "key":
                    np.full(wanted.capacity, -1, array.dtype).tofile(file)
                os.fsync(file.fileno())
        sync_directory(directory)  # names of the files, before what says that they are there
        _write_description(directory, wanted)
    except OSError as error:
        for name in arrays:
            with suppress(OSError):
                _path(directory, name).unlink(missing_ok=True)
        with suppress(OSError):
            (directory / _JSON).unlink(missing_ok=True)
        if error.errno not in _NO_ROOM:
            raise
        raise _no_space(directory, wanted, error.strerror) from error


def _no_space(directory: Path, wanted: Description, cause: str | None) -> SeedbedError:
    needed = files_bytes(wanted.spec, wanted.capacity)
    free = shutil.disk_usage(directory).free
    item = files_bytes(wanted.spec, 1)
    return _refusal(
        f"{directory} has no room for {describe_spec(wanted.spec, wanted.capacity)}: "
        f"{format_bytes(needed)}, and {format_bytes(free)} are free ({cause}): enlarge the "
        f"volume, or hold at most {math.floor(0.95 * free / item)} sequences",
    )
