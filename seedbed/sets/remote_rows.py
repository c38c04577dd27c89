"""A copy of the files of a run that its learner serves, kept up to date while it trains."""

import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from seedbed.runs.served_files import (
    BEST_FILE,
    CHECKED_BYTES,
    MAX_OFFSET,
    MAX_PIECE_BYTES,
    ROW_FILES,
    WHOLE_FILES,
    digest,
)
from seedbed.runtime.files import TEMPORARY, atomic_write, read_object
from seedbed.runtime.http import get_bytes, get_json
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Role, Tokens

# Generations of the copies by file; JSON in the folder of the copies.
GENERATIONS_FILE = "rows.json"
TIMEOUT_S = 3.0
# The most that one `copy` reads of a file; the next one goes on.
MAX_PIECES = 64
# After so many seconds a `copy` asks nothing more.
MAX_COPY_S = 20.0
# Larger files are refused: a row of 1 KB every 10 s for four months.
MAX_ROWS_BYTES = 1 << 30
MAX_WHOLE_BYTES = 16 << 20
MAX_BEST_BYTES = 256 << 20
# Room that a copy of a checkpoint leaves for the rows of other runs.
RESERVE_BYTES = 64 << 20
_MAX_HEAD_BYTES = 1 << 10
_MAX_GENERATION = 200

log = logging.getLogger(__name__)


class RowsReader:
    """Copies the files of one learner's run into a folder, and goes on where it was.

    A file of rows has whole lines only, a file of another kind is replaced as a whole. A file that
    the learner has begun anew (a new generation) takes the place of the copy once it is there to
    its end. The folder keeps the generations, for the next process.

    Args:
        url: The learner's HTTP, such as `http://pong-learner-0.pong-learner:9090`.
        tokens: Tokens with the secret of an observer; None: none is sent.
        timeout_s: Longest wait for a part of an answer, in seconds.
        keeps_best: Copy the best checkpoint of a run at its end, too.
    """

    def __init__(
        self,
        url: str,
        tokens: Tokens | None,
        timeout_s: float = TIMEOUT_S,
        keeps_best: bool = False,
    ) -> None:
        self._url, self._tokens, self._timeout_s = url.rstrip("/"), tokens, timeout_s
        self._keeps_best = keeps_best
        # Generations of the drafts that this reader has begun.
        self._drafts: dict[Path, str] = {}
        self._until = 0.0  # monotonic time

    def copy(self, folder: Path) -> bool:
        """Bring the copies up to date, and return whether they are those of a run at its end.

        Args:
            folder: Folder of the copies; it is made where it is missing.

        Raises:
            OSError: The learner does not answer, or refuses, or is too slow, or a file cannot be
                written. What was copied until then stays.
            ValueError: The answer is wrong. What was copied before stays.
            SeedbedError: CONFIG, the token file has no secret of an observer.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._until = time.monotonic() + MAX_COPY_S
        whole = [self._copy_rows(folder, name) for name in ROW_FILES]
        for name in WHOLE_FILES:
            self._copy_whole(folder, name)
        whole.append(self._has_best(folder))
        if not (all(whole) and (folder / "summary.json").exists()):
            return False
        status = get_json(f"{self._url}/status", self._timeout_s, self._tokens, Role.OBSERVER)
        return isinstance(status, dict) and status.get("rows_read") is True

    def _copy_rows(self, folder: Path, name: str) -> bool:
        """Append what is new to the copy; return whether that was all.

        Raises:
            OSError, ValueError, SeedbedError: As of `copy`.
        """
        path, draft = folder / name, folder / f"{TEMPORARY}{name}"
        target, generation = path, _generation_of(folder, name)
        if draft in self._drafts:
            target, generation = draft, self._drafts[draft]
        length, end = _whole_lines(target)
        for _ in range(MAX_PIECES):
            piece = self._ask(name, generation, length, end)
            if piece.missing:
                self._forget(folder, name)
                return True
            if piece.size > MAX_ROWS_BYTES:
                raise ValueError(f"{name} of {self._url} has {piece.size} bytes: that is too many")
            if piece.generation != generation or piece.offset != length:
                target, length, end = draft, 0, b""
                generation = self._drafts[draft] = piece.generation
                _write(target, b"", os.O_TRUNC)
            lines = piece.content[: piece.content.rfind(b"\n") + 1]
            is_all = length + len(piece.content) == piece.size
            if not lines and not is_all:
                raise ValueError(
                    f"{name} of {self._url} has no whole line in {len(piece.content)} bytes"
                )
            _write(target, lines, os.O_APPEND)
            length, end = length + len(lines), (end + lines)[-CHECKED_BYTES:]
            if is_all:
                if target == draft:
                    draft.replace(path)
                    self._drafts.pop(draft)
                    _remember(folder, name, generation)
                return True
        return False

    def _copy_whole(self, folder: Path, name: str) -> None:
        """Replace the copy where the file has changed.

        Raises:
            OSError, ValueError, SeedbedError: As of `copy`.
        """
        path, piece = folder / name, self._newer(folder, name)
        if piece is None:
            return
        generation, content = piece.generation, b""
        for _ in range(MAX_WHOLE_BYTES // MAX_PIECE_BYTES + 1):
            piece = self._ask(name, generation, len(content), b"")
            if (piece.generation, piece.offset) != (generation, len(content)):
                return  # replaced meanwhile: the next copy has the new one
            if piece.size > MAX_WHOLE_BYTES:
                raise ValueError(f"{name} of {self._url} has {piece.size} bytes: that is too many")
            content += piece.content
            if len(content) == piece.size:
                _check(name, content, self._url)
                atomic_write(path, content)
                _remember(folder, name, generation)
                return
            if not piece.content:
                raise ValueError(f"{name} of {self._url} ends before its {piece.size} bytes")

    def _has_best(self, folder: Path) -> bool:
        """Copy the best checkpoint where it is wanted; return whether there is nothing to add.

        A checkpoint that does not come leaves the rows as they are.
        """
        if not self._keeps_best:
            self._forget(folder, BEST_FILE)  # of before, and perhaps of an earlier end
            return True
        try:
            self._copy_best(folder)
        except (OSError, ValueError) as error:
            log.warning("%s", printable(str(error))[:300])
            return False
        return True

    def _copy_best(self, folder: Path) -> None:
        """Replace the copy of the best checkpoint where it has changed, one piece in memory.

        Raises:
            OSError, ValueError, SeedbedError: As of `copy`.
        """
        path, piece = folder / BEST_FILE, self._newer(folder, BEST_FILE)
        if piece is None:
            return
        self._forget(folder, BEST_FILE)
        words = f"{BEST_FILE} of {self._url} has {piece.size:,} bytes"
        if piece.size > MAX_BEST_BYTES:
            raise ValueError(f"{words}, and at most {MAX_BEST_BYTES:,} are copied")
        if (free := shutil.disk_usage(folder).free) < piece.size + RESERVE_BYTES:
            raise OSError(f"{words}, and {folder} has room for {free:,}: it is not copied")
        draft = path.with_name(f"{TEMPORARY}{path.name}")
        draft.parent.mkdir(exist_ok=True)
        _write(draft, b"", os.O_TRUNC)
        generation, length = piece.generation, 0
        while True:
            piece = self._ask(BEST_FILE, generation, length, b"")
            if (piece.generation, piece.offset) != (generation, length) or not piece.content:
                raise ValueError(f"{BEST_FILE} of {self._url} has changed: it is copied anew")
            _write(draft, piece.content, os.O_APPEND)
            length += len(piece.content)
            if length == piece.size:
                draft.replace(path)
                _remember(folder, BEST_FILE, generation)
                return

    def _newer(self, folder: Path, name: str) -> "_Piece | None":
        """Return a piece of a file that is replaced as a whole, where its copy is another one.

        None where there is nothing to copy; the copy of a file that the run has no more is removed.

        Raises:
            OSError, ValueError, SeedbedError: As of `copy`.
        """
        path, generation = folder / name, _generation_of(folder, name)
        length = path.stat().st_size if path.exists() else 0
        piece = self._ask(name, generation, length, b"")
        if piece.missing:
            self._forget(folder, name)
            return None
        is_same = (piece.generation, piece.offset, piece.size) == (generation, length, length)
        return None if is_same and length else piece

    def _ask(self, name: str, generation: str, offset: int, end: bytes) -> "_Piece":
        """Return the next piece of a file.

        Args:
            name: The file.
            generation: That of the copy; "" without one.
            offset: Bytes of the copy.
            end: Its last `CHECKED_BYTES`, of a file of rows.

        Raises:
            OSError, ValueError, SeedbedError: As of `copy`.
        """
        if time.monotonic() > self._until:
            raise TimeoutError(f"{self._url}: {name} is not read after {MAX_COPY_S:g} s")
        query = {"file": name, "generation": generation, "offset": str(offset)}
        if end:
            query["digest"] = digest(end)
        url, most = f"{self._url}/rows?{urlencode(query)}", _MAX_HEAD_BYTES + MAX_PIECE_BYTES + 1
        answer = get_bytes(url, self._timeout_s, self._tokens, Role.OBSERVER, most)
        piece = _read_piece(answer)
        if piece is None or piece.offset not in (0, offset):
            raise ValueError(f"{self._url} answers with no piece of {name}: {answer[:100]!r}")
        return piece

    def _forget(self, folder: Path, name: str) -> None:
        """Remove the copy of a file that the run has no more."""
        path = folder / name
        draft = path.with_name(f"{TEMPORARY}{path.name}")
        self._drafts.pop(draft, None)
        for one in (path, draft):
            one.unlink(missing_ok=True)


class _Piece(NamedTuple):
    """An answer of /rows."""

    generation: str
    offset: int
    size: int
    missing: bool
    content: bytes


def _read_piece(answer: bytes) -> _Piece | None:
    """Return an answer of /rows; None where it is none."""
    head, line_end, content = answer.partition(b"\n")
    if not line_end or len(head) > _MAX_HEAD_BYTES or len(content) > MAX_PIECE_BYTES:
        return None
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        found = json.loads(head)
        generation, missing = found["generation"], found["missing"]
        offset, size = _number(found, "offset"), _number(found, "size")
        is_text = isinstance(generation, str) and len(generation) <= _MAX_GENERATION
        if is_text and isinstance(missing, bool) and offset + len(content) <= size:
            return _Piece(generation, offset, size, missing, content)
    return None


def _number(head: Mapping[str, Any], name: str) -> int:
    number = head[name]
    if type(number) is not int or not 0 <= number <= MAX_OFFSET:
        raise ValueError(name)
    return number


def _check(name: str, content: bytes, url: str) -> None:
    """Refuse a file that no run writes.

    Raises:
        ValueError: It is no text, or of a JSON file no object.
    """
    try:
        text = content.decode()
        is_ours = not name.endswith(".json") or isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        is_ours = False
    if not is_ours:
        raise ValueError(f"{name} of {url} is none of a run: {content[:100]!r}")


def _generation_of(folder: Path, name: str) -> str:
    return str(read_object(folder / GENERATIONS_FILE).get(name, ""))


def _remember(folder: Path, name: str, generation: str) -> None:
    """Keep the generation of a copy."""
    path = folder / GENERATIONS_FILE
    atomic_write(path, json.dumps({**read_object(path), name: generation}, indent=1) + "\n")


def _whole_lines(path: Path) -> tuple[int, bytes]:
    """Cut what a kill has left of a line; return the length of the file and its last bytes."""
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b")
    except FileNotFoundError:
        return 0, b""
    with file:
        size = file.seek(0, os.SEEK_END)
        begin = max(0, size - MAX_PIECE_BYTES)
        file.seek(begin)
        lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        # Without a whole line within what an answer has, it is no copy.
        length = begin + len(whole) if whole else 0
        if length < size:
            file.truncate(length)
    return length, whole[-CHECKED_BYTES:]


def _write(path: Path, content: bytes, how: int) -> None:
    """Write to a file, but through no symbolic link.

    Args:
        path: The file; it is made where it is missing.
        content: What to write.
        how: `os.O_APPEND`, or `os.O_TRUNC` for a file that begins anew.

    Raises:
        OSError: It cannot be written.
    """
    if content or how == os.O_TRUNC:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | how
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            file.write(content)
