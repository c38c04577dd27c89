"""Send the files of a run directory to stdout. Its text runs in a pod, by `python -c`.

A line of JSON on stdin names the folder, the names that stay there, the folders below it that stay,
and what the receiver has:

    {"root": PATH, "leave": [PATTERN, ...], "skip": [FOLDER, ...], "have": {FILE: [bytes, sha256]}}

The answer is a line `{"files", "bytes", "unreadable"}`, then each file that the receiver lacks: a
line `{"file", "bytes"}`, so many bytes, and a line `{"sha256"}`, null where the file was cut in
the meantime. `{"file", "same"}` is one that the receiver has, `{"file", "gone"}` one that was
deleted. The last line is `{"end": true}`; without it the connection has broken. A file that grows
is sent as far as it was when it was opened.
"""

import fnmatch
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK = 1 << 20
# Sent first, in this order: what names the run and its starts.
_FIRST = ("owner.json", "history.json", "experiment.yaml", "seedbed.lock")


def send() -> None:
    """Answer the line on stdin."""
    asked = json.loads(sys.stdin.readline())
    root = Path(asked["root"])
    if not root.is_dir():
        _tell({"missing": str(root)})
        return
    unreadable: list[str] = []
    sizes = dict(_files(root, asked["leave"], set(asked["skip"]), unreadable))
    _tell({"files": len(sizes), "bytes": sum(sizes.values()), "unreadable": unreadable})
    for file in sorted(sizes, key=lambda file: (_rank(file), sizes[file], file)):
        _send_file(root, file, asked["have"].get(file))
    _tell({"end": True})


def _rank(file: str) -> int:
    name = file.rpartition("/")[2]
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _files(
    root: Path, leave: list[str], skip: set[str], unreadable: list[str]
) -> Iterator[tuple[str, int]]:
    """Yield path and size of each regular file below the folder, but those that stay there."""

    def stays(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in leave)

    def note(error: OSError) -> None:
        unreadable.append(f"{error.filename}: {error.strerror}")

    for folder, folders, names in os.walk(root, onerror=note):
        inner = os.path.relpath(folder, root)
        folders[:] = [
            name
            for name in folders
            if not stays(name) and os.path.normpath(f"{inner}/{name}") not in skip
        ]
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except OSError:  # deleted in the meantime
                continue
            if stat.S_ISREG(status.st_mode) and not stays(name):
                yield str(path.relative_to(root)), status.st_size


def _send_file(root: Path, file: str, have: list[Any] | None) -> None:
    with ExitStack() as stack:
        try:
            content = stack.enter_context((root / file).open("rb"))
        except OSError as error:
            _tell({"file": file, "gone": error.strerror})
            return
        size = os.fstat(content.fileno()).st_size
        if have is not None and have[0] == size and have[1] == _copy(content, size, None):
            _tell({"file": file, "same": True})
            return
        content.seek(0)
        _tell({"file": file, "bytes": size})
        _tell({"sha256": _copy(content, size, sys.stdout.buffer)})


def _copy(content: BinaryIO, size: int, to: BinaryIO | None) -> str | None:
    """Return the SHA-256 of the first bytes, and write them; None where there are fewer by now."""
    digest, left = hashlib.sha256(), size
    while left:
        chunk = content.read(min(left, _CHUNK))
        if not chunk:
            break
        digest.update(chunk)
        if to is not None:
            to.write(chunk)
        left -= len(chunk)
    is_whole = not left
    while left and to is not None:  # the receiver waits for them
        left -= to.write(bytes(min(left, _CHUNK)))
    return digest.hexdigest() if is_whole else None


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    send()
