"""Files that are written whole or not at all, and JSON objects read from them.

What a writer of this module has written is on the disk when it returns, so that a power cut leaves
the new file, or before that the old one.
"""

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seedbed.runtime.shortage import refill, with_spare
from seedbed.runtime.text import printable_texts

# Begins the name of a file that is not yet whole.
TEMPORARY = ".tmp-"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; put it in the place of `path` if the block succeeds.

    After an error the temporary file is deleted, and `path` is as it was.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        yield temporary
        _sync(temporary, os.O_RDONLY)  # else the name may get there before the content
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def append_row(path: Path, row: str, header: str = "") -> None:
    """Append a row to a file. A row before it that was cut, by a full disk or a kill, is dropped.

    Args:
        path: File of rows; made with the header where it is missing or empty.
        row: Text that ends with a newline.
        header: First row of a new file.

    Raises:
        OSError: The row cannot be written; half of it may be there.
    """
    is_new = not path.exists()
    with with_spare(lambda: path.open("a+b")) as file:
        size = whole = file.tell()
        while whole and file.seek(whole - 1) is not None and file.read(1) != b"\n":
            whole -= 1
        if whole < size:
            file.truncate(whole)
        file.write((row if whole else header + row).encode())
        file.flush()
        os.fsync(file.fileno())
    refill()
    if is_new:
        sync_directory(path.parent)


def csv_row(cells: Iterable[Any]) -> str:
    """Return cells as a row of a CSV file."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def version_of(file: Path) -> tuple[int, ...]:
    """Return what changes with each version of a file; () of one that is not there."""
    try:
        at = file.stat()
    except OSError:
        return ()
    return at.st_ino, at.st_mtime_ns, at.st_size


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object, with printable texts; empty where there is no file, or a damaged one."""
    try:
        return dict(printable_texts(json.loads(path.read_text())))
    except (OSError, ValueError, TypeError):
        return {}


def atomic_write(path: Path, data: str | bytes, *, is_private: bool = False) -> None:
    """Write a file whole, in the place of an older one, or leave the older one as it was.

    Args:
        path: File to write; its directory exists.
        data: Content; text is written as UTF-8.
        is_private: Only this user may read the file.

    Raises:
        OSError: The file cannot be written.
    """
    with replacing(path) as temporary:
        if is_private:
            temporary.touch(0o600)
        with with_spare(lambda: temporary.open("wb")) as file:
            file.write(data.encode() if isinstance(data, str) else data)
        refill()


def delete_oldest(folder: Path, most_bytes: int) -> None:
    """Delete the oldest files of a folder, until it has at most so many bytes.

    Args:
        folder: Folder; nothing happens where there is none.
        most_bytes: Bytes of all files that may stay.
    """
    found = []
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path.stat().st_size, path))
    size = sum(each for _, each, _ in found)
    for _, bytes_here, path in sorted(found):
        if size <= most_bytes:
            return
        with contextlib.suppress(OSError):
            path.unlink()
            size -= bytes_here


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk; a rename alone does not wait."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    """Wait until the content of a file, or the names in a directory, are on the disk."""
    handle = with_spare(lambda: os.open(path, flags | os.O_CLOEXEC))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
        refill()


def make_directory(path: Path) -> None:
    """Make a directory and its parents; their names are on the disk when this returns."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        with contextlib.suppress(PermissionError):  # a folder that may be used and not be listed
            sync_directory(each.parent)
