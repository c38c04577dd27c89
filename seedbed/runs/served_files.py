"""Files of a run directory that its learner serves to observers, piece by piece: `GET /rows`."""

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import parse_qs

from seedbed.runtime.http import BadRequest

# Files that only grow, row by row, but for a cut or a rewriting; then those that are replaced.
ROW_FILES = ("progress.csv", "evaluations.csv")
WHOLE_FILES = ("summary.json", "experiment.yaml", "history.json")
FILES = ROW_FILES + WHOLE_FILES
# Served once the run has ended, and only then a file that observers are to have read, if one of
# them has asked for it.
BEST_FILE = "checkpoints/best.safetensors"
# The most that one answer has of a file.
MAX_PIECE_BYTES = 1 << 20
# Bytes before an offset by whose digest a copy is compared with the file.
CHECKED_BYTES = 4 << 10
MAX_OFFSET = 1 << 53
_MAX_HEADER_BYTES = 64 << 10


def digest(content: bytes) -> str:
    """Return the digest of what a copy has before its end, as a query has it.

    Args:
        content: The last `CHECKED_BYTES` of the copy, or all of a shorter one.
    """
    return hashlib.blake2b(content, digest_size=8).hexdigest()


class _Stamp(NamedTuple):
    """What changes with the content of a file."""

    inode: int
    size: int
    changed_ns: int


class _Seen(NamedTuple):
    """What was seen of a file that grows."""

    inode: int
    size: int
    cuts: int


class ServedFiles:
    """The files of a run, as far as observers have read them. Thread-safe.

    Args:
        path: The run directory.
        is_over: Returns whether the run has ended by a stop condition.
    """

    def __init__(self, path: Path, is_over: Callable[[], bool]) -> None:
        self._path, self._is_over = path, is_over
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        # As they were when they were read to their end, after the run's end; None: missing.
        self._read: dict[str, _Stamp | None] = {}
        self._best_is_wanted = False

    @property
    def are_read(self) -> bool:
        """Whether observers have read, since the run's end, each file to its end.

        The best checkpoint is one of them once it was asked for.
        """
        if not self._has_ended():
            return False
        with self._lock:
            read = dict(self._read)
        wanted = (*FILES, BEST_FILE) if self._best_is_wanted else FILES
        return all(name in read and read[name] == self._stamp(name) for name in wanted)

    def answer(self, query: str) -> bytes:
        """Return a piece of a file behind a line of JSON.

        The line has `generation`, `offset` and `size` of the file, and whether it is `missing`. The
        piece begins at the offset of the query if the copy up to there is one of this generation,
        and at 0 otherwise. Until the run has ended, the best checkpoint is missing.

        Args:
            query: `file`, `generation` and `offset` of the copy, and `digest` of its end.

        Raises:
            BadRequest: It names no file that is served, or no possible offset.
        """
        given = _parse(query)
        name, offset = _name(given), _offset(given)
        # Asked first: what is read afterwards is of a run that has ended.
        has_ended = self._has_ended()
        if name == BEST_FILE:
            self._best_is_wanted = True
            if not has_ended:
                return _answer("", 0, 0, True, b"")
        try:
            file = (self._path / name).open("rb")
        except FileNotFoundError:
            if has_ended:
                self._note_end(name, None)
            return _answer("", 0, 0, True, b"")
        with file:
            generation, stamp = self._generation(name, file)
            same = given.get("generation") == generation and _is_copy(given, file, offset, stamp)
            begin = offset if same else 0
            file.seek(begin)
            piece = file.read(min(MAX_PIECE_BYTES, stamp.size - begin))
        if has_ended and begin + len(piece) == stamp.size:
            self._note_end(name, stamp)
        return _answer(generation, begin, stamp.size, False, piece)

    def _has_ended(self) -> bool:
        return self._is_over() and self._stamp("summary.json") is not None

    def _note_end(self, name: str, stamp: _Stamp | None) -> None:
        with self._lock:
            self._read[name] = stamp

    def _stamp(self, name: str) -> _Stamp | None:
        try:
            return _stamp_of((self._path / name).stat())
        except FileNotFoundError:
            return None

    def _generation(self, name: str, file: BinaryIO) -> tuple[str, _Stamp]:
        """Return what names this content and what only grows from it, and the file's stamp.

        Of a file of rows it is the same after a restart of the learner: its inode, its first line
        and how often this process has seen it cut. The digest of a query finds what is cut or
        rewritten while no learner is there.
        """
        if name not in ROW_FILES:
            stamp = _stamp_of(os.fstat(file.fileno()))
            return f"{stamp.inode:x}-{stamp.size:x}-{stamp.changed_ns:x}", stamp
        header = digest(file.readline(_MAX_HEADER_BYTES))
        with self._lock:  # a size that is older than the newest one would be a cut
            stamp = _stamp_of(os.fstat(file.fileno()))
            before = self._seen.get(name, _Seen(stamp.inode, 0, 0))
            cut = before.inode == stamp.inode and stamp.size < before.size
            seen = _Seen(stamp.inode, stamp.size, before.cuts + cut)
            self._seen[name] = seen
        return f"{stamp.inode:x}-{header}-{seen.cuts}", stamp


def _parse(query: str) -> Mapping[str, str]:
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from None
    return {key: values[-1] for key, values in given.items()}


def _name(given: Mapping[str, str]) -> str:
    name = given.get("file", "")
    if name not in (*FILES, BEST_FILE):
        names = ", ".join((*FILES, BEST_FILE))
        raise BadRequest(f"file={name[:100]!r} must be one of {names}")
    return name


def _offset(given: Mapping[str, str]) -> int:
    text = given.get("offset", "0")
    if re.fullmatch("[0-9]{1,16}", text) is None or int(text) > MAX_OFFSET:
        raise BadRequest(f"offset={text[:100]!r} must be a number of bytes, from 0 to {MAX_OFFSET}")
    return int(text)


def _is_copy(given: Mapping[str, str], file: BinaryIO, offset: int, stamp: _Stamp) -> bool:
    """Return whether a copy of `offset` bytes may be the beginning of the file."""
    if offset > stamp.size:
        return False
    if "digest" not in given or not offset:
        return True
    file.seek(max(0, offset - CHECKED_BYTES))
    return digest(file.read(min(offset, CHECKED_BYTES))) == given["digest"]


def _stamp_of(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def _answer(generation: str, offset: int, size: int, missing: bool, piece: bytes) -> bytes:
    head: dict[str, Any] = {
        "generation": generation,
        "offset": offset,
        "size": size,
        "missing": missing,
    }
    return json.dumps(head).encode() + b"\n" + piece
