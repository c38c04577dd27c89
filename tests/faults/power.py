"""Power cuts: the writes of a real process, and the disks that a cut at any moment may leave.

`record` runs a program under strace, which sees each system call, so that no write goes past the
record. `Record.cuts` replays the calls up to each of them, and drops what was not synced by then:

- Bytes of a file are on the disk once the file is synced. Of the later writes any may be there,
  whole or cut, and what lies between them is zeros.
- A name (of a new file, of a renamed or deleted one) is on the disk once its folder is synced. Of
  the later changes of a folder a disk has the first ones, or any.

Memory-mapped files are written without calls; `Record.mapped` names them.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import ROOT

CALLS = (
    "openat,open,creat,close,write,pwrite64,writev,pwritev,pwritev2,lseek,ftruncate,truncate,"
    "fallocate,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,link,linkat,"
    "symlink,symlinkat,fsync,fdatasync,sync_file_range,mmap,dup,dup2,dup3,fcntl,sendfile,"
    "copy_file_range,splice,clone,clone3,fork,vfork"
)
# A deleted name of this kind is a note of the program: what it has stated up to here.
_NOTE = "stated:"
_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)")
_BEGUN = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>")
_ENDED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE = re.compile(r"(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>")
_UNKNOWN = {
    *("writev", "pwritev", "pwritev2", "truncate", "link", "linkat", "symlink", "symlinkat"),
    *("sendfile", "copy_file_range", "splice", "creat", "open"),
}


def state(root: Path, text: str) -> None:
    """Note what this process states from here on, such as a checkpoint that it reports."""
    (root / f"{_NOTE}{text}").unlink(missing_ok=True)


@dataclass
class Node:
    """A file, or a folder.

    Attributes:
        changes: of a file (offset, bytes), or (size, None) for a new size; of a folder the names
            with the nodes that they get, None for a deleted name.
        synced: how many of them are on the disk.
    """

    is_folder: bool
    changes: list[tuple[int, bytes | None] | dict[str, Node | None]] = field(default_factory=list)
    synced: int = 0

    def names(self, changes: Sequence[object]) -> dict[str, Node]:
        found: dict[str, Node | None] = {}
        for change in changes:
            assert isinstance(change, dict)
            found |= change
        return {name: node for name, node in found.items() if node is not None}

    def content(self, changes: Sequence[object]) -> bytes:
        found = bytearray()
        for change in changes:
            assert isinstance(change, tuple)
            offset, data = change
            end = offset + len(data or b"")
            found.extend(bytes(max(end - len(found), 0)))
            if data is None:
                del found[offset:]
            else:
                found[offset:end] = data
        return bytes(found)


@dataclass
class _Open:
    """An open file: its position is shared by its copies."""

    appends: bool
    at: int = 0


Kept = Callable[[Node, Sequence[object]], Sequence[object]]


@dataclass
class Record:
    """What a program did below a folder.

    Attributes:
        calls: changes, each a function that makes it.
        mapped: files that were mapped for writing.
    """

    root: str
    calls: list[Callable[[], None]] = field(default_factory=list)
    mapped: set[str] = field(default_factory=set)
    top: Node = field(default_factory=lambda: Node(True))
    stated: list[str] = field(default_factory=list)

    def cuts(self, to: Path, seeds: Sequence[int] = (1, 2)) -> Iterator[tuple[Path, list[str]]]:
        """Yield the disks that a cut may leave, each as a folder, and what was stated by then.

        Args:
            to: the folder; made anew for each disk.
            seeds: one more disk a seed and cut, of changes that are drawn.
        """
        seen = set()
        for number, call in enumerate(self.calls):
            call()
            draws = [_drawn(random.Random(f"{seed} {number}")) for seed in seeds]
            for kept in (_nothing, _everything, _names, _bytes, *draws):
                tree = dict(_tree(self.top, kept))
                digest = _digest(tree, self.stated)
                if digest not in seen:
                    seen.add(digest)
                    place = to / str(len(seen))
                    _write(place, tree)
                    yield place, list(self.stated)


def _nothing(node: Node, later: Sequence[object]) -> Sequence[object]:
    return ()


def _everything(node: Node, later: Sequence[object]) -> Sequence[object]:
    return later


def _names(node: Node, later: Sequence[object]) -> Sequence[object]:
    return later if node.is_folder else ()


def _bytes(node: Node, later: Sequence[object]) -> Sequence[object]:
    return () if node.is_folder else later


def _drawn(draw: random.Random) -> Kept:
    def kept(node: Node, later: Sequence[object]) -> Sequence[object]:
        if node.is_folder and draw.random() < 0.5:
            return later[: draw.randint(0, len(later))]
        some: list[object] = []
        for change in later:
            if draw.random() < 0.5:
                continue
            if isinstance(change, tuple) and change[1] and draw.random() < 0.5:
                change = change[0], change[1][: draw.randint(1, len(change[1]))]
            some.append(change)
        return some

    return kept


def _tree(top: Node, kept: Kept, path: str = "") -> Iterator[tuple[str, bytes | None]]:
    """Yield the paths of a disk with their bytes, None for a folder."""
    changes = [*top.changes[: top.synced], *kept(top, top.changes[top.synced :])]
    if not top.is_folder:
        yield path, top.content(changes)
        return
    yield path, None
    for name, node in sorted(top.names(changes).items()):
        yield from _tree(node, kept, f"{path}/{name}")


def _digest(tree: dict[str, bytes | None], stated: list[str]) -> bytes:
    found = hashlib.sha256(repr(stated).encode())
    for path, data in tree.items():
        found.update(f"{path} {data is None} {len(data or b'')}\n".encode() + (data or b""))
    return found.digest()


def _write(place: Path, tree: dict[str, bytes | None]) -> None:
    for path, data in tree.items():
        file = place / path.lstrip("/")
        if data is None:
            file.mkdir(parents=True)
        else:
            file.write_bytes(data)


def record(root: Path, *module: str) -> Record:
    """Run a module of the tests, and return what it did below an empty folder.

    Args:
        root: the folder.
        module: the module and its arguments, of which the first is the folder.
    """
    log = root.with_suffix(".strace")
    # A checkpoint of a megabyte takes four in the log.
    subprocess.run(
        [
            *("strace", "-f", "-qq", "--seccomp-bpf", "-xx", "-y", "-s", "100000000"),
            *("-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(log)),
            *(sys.executable, "-m", *module[:1], str(root), *module[1:]),
        ],
        cwd=ROOT,
        check=True,
    )
    return parse(log.read_text(), str(root))


def parse(log: str, root: str) -> Record:
    """Return the changes below a folder that a log of strace tells."""
    found = Record(root)
    reader = _Reader(found)
    begun: dict[str, str] = {}
    for line in log.splitlines():
        if (match := _BEGUN.fullmatch(line)) is not None:
            begun[match[1]] = match[2]
            continue
        if (match := _ENDED.fullmatch(line)) is not None:
            line = f"{match[1]} {begun.pop(match[1])}{match[2]}"
        if (match := _LINE.match(line)) is not None:
            reader.take(match[1], match[2], match[3], int(match[4]))
    assert not reader.strange, f"calls that this test does not know: {reader.strange}"
    return found


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


class _Reader:
    """Turns calls into changes of `Record.top`, which are made when the record is replayed."""

    def __init__(self, found: Record) -> None:
        self._record, self._root = found, found.root
        self._nodes: dict[str, Node] = {found.root: found.top}  # by the paths of now
        self._files: dict[str, dict[int, _Open]] = {}
        self._sizes: dict[int, int] = {}
        self.strange: set[str] = set()

    def take(self, task: str, name: str, text: str, result: int) -> None:
        if name in ("clone", "clone3", "fork", "vfork"):
            if result > 0:
                mine = self._files.setdefault(task, {})
                self._files[str(result)] = mine if "CLONE_FILES" in text else dict(mine)
            return
        texts = [_plain(each) for each in _TEXT.findall(text)]
        files = [(number, _plain(path).decode()) for number, path in _FILE.findall(text)]
        if name == "unlink" and (note := texts[0].decode().partition(f"/{_NOTE}")[2]):
            self._do(lambda: self._record.stated.append(note))
            return
        mine = self._files.setdefault(task, {})
        if result >= 0 and name not in ("mmap",):
            method = getattr(self, f"_on_{name}", None)
            if method is not None:
                method(mine, text, texts, files, result)
            elif name in _UNKNOWN and any(map(self._is_below, self._paths(texts, files))):
                self.strange.add(f"{name}({text[:80]}")
        elif name == "mmap" and "PROT_WRITE" in text and "MAP_SHARED" in text:
            self._record.mapped |= {path for _, path in files if self._is_below(path)}

    def _do(self, call: Callable[[], None]) -> None:
        self._record.calls.append(call)

    def _paths(self, texts: list[bytes], files: list[tuple[str, str]]) -> list[str]:
        return [*(os.fsdecode(text) for text in texts), *(path for _, path in files)]

    def _is_below(self, path: str) -> bool:
        return path == self._root or path.startswith(f"{self._root}/")

    def _path(self, texts: list[bytes], files: list[tuple[str, str]], which: int = 0) -> str:
        at = files[which][1] if which < len(files) else str(Path.cwd())
        return os.path.normpath(Path(at, os.fsdecode(texts[which])))

    def _name(self, path: str, node: Node | None) -> None:
        """Give a name to a node, or take it away."""
        folder, name = os.path.split(path)
        parent = self._nodes[folder]
        self._do(lambda: parent.changes.append({name: node}))

    def _change(self, path: str, offset: int, data: bytes | None) -> None:
        node = self._nodes.get(path)
        if node is None:
            assert path.endswith("(deleted)") or not self._is_below(path), path
            return
        size = self._sizes.get(id(node), 0)
        self._sizes[id(node)] = offset if data is None else max(size, offset + len(data))
        self._do(lambda: node.changes.append((offset, data)))

    def _on_openat(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        path = self._path(texts, files)
        if not self._is_below(path):
            mine.pop(result, None)
            return
        if "O_CREAT" in text and path not in self._nodes:
            self._nodes[path] = Node(False)
            self._name(path, self._nodes[path])
        elif "O_TRUNC" in text:
            self._change(path, 0, None)
        mine[result] = _Open("O_APPEND" in text)

    def _on_mkdir(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        path = self._path(texts, files)
        if self._is_below(path) and path != self._root:
            self._nodes[path] = Node(True)
            self._name(path, self._nodes[path])

    _on_mkdirat = _on_mkdir

    def _on_rename(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        source, target = self._path(texts, files), self._path(texts, files, 1)
        if not self._is_below(source) and not self._is_below(target):
            return
        node = self._nodes.pop(source)
        for path in [path for path in self._nodes if path.startswith(f"{source}/")]:
            self._nodes[target + path.removeprefix(source)] = self._nodes.pop(path)
        self._nodes[target] = node
        old, new = Path(source), Path(target)
        if old.parent == new.parent:
            parent = self._nodes[str(old.parent)]
            self._do(lambda: parent.changes.append({old.name: None, new.name: node}))
        else:
            self._name(target, node)
            self._name(source, None)

    _on_renameat = _on_renameat2 = _on_rename

    def _on_unlink(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        path = self._path(texts, files)
        if self._nodes.pop(path, None) is not None:
            self._name(path, None)

    _on_unlinkat = _on_rmdir = _on_unlink

    def _on_write(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        number, path = files[0]
        if self._is_below(path):
            file = mine[int(number)]
            if file.appends:
                file.at = self._sizes.get(id(self._nodes.get(path)), 0)
            self._change(path, file.at, texts[0][:result])
            file.at += result

    def _on_pwrite64(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        if self._is_below(files[0][1]):
            self._change(files[0][1], int(text.rpartition(", ")[2]), texts[0][:result])

    def _on_lseek(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        if self._is_below(files[0][1]):
            mine[int(files[0][0])].at = result

    def _on_ftruncate(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        path, size = files[0][1], int(text.rpartition(", ")[2])
        if self._is_below(path):
            self._change(path, size, None)

    def _on_fallocate(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        path, end = files[0][1], sum(map(int, text.split(", ")[-2:]))
        if self._is_below(path):
            self._change(path, max(end, self._sizes.get(id(self._nodes[path]), 0)), None)

    def _on_fsync(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        node = self._nodes.get(files[0][1])
        if node is not None:
            self._do(lambda: setattr(node, "synced", len(node.changes)))

    _on_fdatasync = _on_fsync

    def _on_dup(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        if self._is_below(files[0][1]):
            mine[result] = mine[int(files[0][0])]

    _on_dup2 = _on_dup3 = _on_dup

    def _on_fcntl(self, mine, text, texts, files, result) -> None:  # type: ignore[no-untyped-def]
        if "F_DUPFD" in text:
            self._on_dup(mine, text, texts, files, result)
