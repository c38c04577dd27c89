"""Where checkpoints lie: a local directory, or any other place that fsspec reaches.

Both write a file whole or not at all. A reader never sees half of one under its final name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any, Protocol

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import TEMPORARY, atomic_write, sync_directory


class Files(Protocol):
    """A flat directory of files. Failures of reading and writing are OSError."""

    directory: str

    def names(self) -> list[str]:
        """Names of the files, sorted; empty where there is no such directory."""

    def read(self, name: str) -> bytes:
        """Everything in one file."""

    def write(self, name: str, content: bytes) -> None:
        """Put a file there whole, in place of an older one, or leave all as it was."""

    def rename(self, name: str, to: str) -> None:
        """Give a file another name; `to` may begin with a subdirectory."""

    def remove(self, name: str) -> None:
        """Delete one file; not to find it is no error."""


class LocalFiles:
    """A directory of this machine. Safe against kill -9 and, with fsync, against power loss."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        try:
            entries = list(os.scandir(self.directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(entry.name for entry in entries if entry.is_file())

    def read(self, name: str) -> bytes:
        return Path(self.directory, name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        atomic_write(Path(self.directory, name), content, fsync=True)

    def rename(self, name: str, to: str) -> None:
        target = Path(self.directory, to)
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(self.directory, name).replace(target)
        sync_directory(Path(self.directory))

    def remove(self, name: str) -> None:
        Path(self.directory, name).unlink(missing_ok=True)


class RemoteFiles:
    """What fsspec reaches: `gs://bucket/run`, `s3://...`, `memory://...`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory.rstrip("/")
        self._filesystem, self._root = _filesystem(self.directory)

    def names(self) -> list[str]:
        with _as_oserror(self.directory):
            self._filesystem.invalidate_cache()
            try:
                entries = self._filesystem.ls(self._root, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(
            str(entry["name"]).rsplit("/", 1)[-1] for entry in entries if entry["type"] == "file"
        )

    def read(self, name: str) -> bytes:
        with _as_oserror(self.directory):
            return bytes(self._filesystem.cat_file(f"{self._root}/{name}"))

    def write(self, name: str, content: bytes) -> None:
        temporary = f"{self._root}/{TEMPORARY}{secrets.token_hex(4)}-{name}"
        with _as_oserror(self.directory):
            try:
                self._filesystem.makedirs(self._root, exist_ok=True)
                self._filesystem.pipe_file(temporary, content)
                self._move(temporary, f"{self._root}/{name}")
            except BaseException:
                with contextlib.suppress(Exception):
                    self._filesystem.rm_file(temporary)
                raise

    def rename(self, name: str, to: str) -> None:
        with _as_oserror(self.directory):
            target = f"{self._root}/{to}"
            self._filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self._move(f"{self._root}/{name}", target)

    def remove(self, name: str) -> None:
        with _as_oserror(self.directory), contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{name}")

    def _move(self, source: str, target: str) -> None:
        # Object stores have no rename: a copy appears whole, then the source goes.
        self._filesystem.cp_file(source, target)
        self._filesystem.rm_file(source)


def open_files(directory: str) -> Files:
    """The right one of the two for a path.

    Raises:
        SeedbedError: fsspec does not know the protocol, or its driver is not installed.
    """
    protocol, separator, rest = directory.partition("://")
    if not separator:
        return LocalFiles(directory)
    if protocol in ("file", "local"):
        return LocalFiles(rest)
    return RemoteFiles(directory)


def _filesystem(url: str) -> tuple[Any, str]:
    protocol = url.partition("://")[0]
    try:
        import fsspec
        from fsspec.registry import known_implementations
    except ImportError as error:
        raise SeedbedError(
            ExitCode.CONFIG, f"the path {url} needs the package fsspec: pip install fsspec"
        ) from error
    try:
        filesystem, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        driver = known_implementations.get(protocol, {}).get("class", "").partition(".")[0]
        raise SeedbedError(
            ExitCode.CONFIG,
            f"the path {url} needs a driver for {protocol}:// that is not installed: "
            f"pip install {driver or error.name}",
        ) from error
    except ValueError as error:
        raise SeedbedError(ExitCode.CONFIG, f"the path {url} cannot be used: {error}") from error
    return filesystem, str(root).rstrip("/")


class _as_oserror:
    """Drivers raise classes of their own; what stands around them knows OSError."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, OSError):
            raise OSError(f"{self._directory}: {type(error).__name__}: {error}") from error
