"""Places of checkpoints: a local directory, or any directory that fsspec reaches.

A file is written whole or not at all. A reader never sees half of a file under the final name.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.files import TEMPORARY, atomic_write, make_directory, sync_directory
from seedbed.runtime.shortage import with_spare


class Files:
    """Flat directory of files on this machine. Failures of reading and writing are OSError.

    A whole file survives kill -9 and a power cut.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """List the names of the files; none where there is no such directory."""
        try:
            entries = with_spare(lambda: list(os.scandir(self.directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [entry.name for entry in entries if entry.is_file()]

    def read(self, name: str) -> bytes:
        """Return the content of one file."""
        return with_spare(Path(self.directory, name).read_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, in the place of an older one, or leave everything as it was."""
        make_directory(Path(self.directory))
        atomic_write(Path(self.directory, name), content)

    def rename(self, name: str, to: str) -> None:
        """Give a file another name; `to` may begin with a subdirectory."""
        target = Path(self.directory, to)
        make_directory(target.parent)
        Path(self.directory, name).replace(target)
        sync_directory(target.parent)
        sync_directory(Path(self.directory))

    def remove(self, name: str) -> None:
        """Delete one file; a missing file is no error."""
        Path(self.directory, name).unlink(missing_ok=True)


class RemoteFiles(Files):
    """Directory that fsspec reaches: `gs://bucket/run`, `s3://...`, `memory://...`."""

    def __init__(self, directory: str) -> None:
        import fsspec
        from fsspec.registry import known_implementations

        super().__init__(directory.rstrip("/"))
        try:
            self._filesystem, root = fsspec.core.url_to_fs(self.directory)
        except ImportError as error:
            protocol = directory.partition("://")[0]
            driver = known_implementations.get(protocol, {}).get("class", "").partition(".")[0]
            raise ConfigError(
                f"the path {self.directory} needs a driver for {protocol}:// that is not "
                f"installed: pip install {driver or error.name}"
            ) from error
        except ValueError as error:
            raise ConfigError(f"the path {self.directory} cannot be used: {error}") from error
        self._root = str(root).rstrip("/")

    @override
    def names(self) -> list[str]:
        with _as_oserror(self.directory):
            self._filesystem.invalidate_cache()
            try:
                entries = self._filesystem.ls(self._root, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [entry["name"].rsplit("/", 1)[-1] for entry in entries if entry["type"] == "file"]

    @override
    def read(self, name: str) -> bytes:
        with _as_oserror(self.directory):
            return bytes(self._filesystem.cat_file(f"{self._root}/{name}"))

    @override
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

    @override
    def rename(self, name: str, to: str) -> None:
        with _as_oserror(self.directory):
            target = f"{self._root}/{to}"
            self._filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self._move(f"{self._root}/{name}", target)

    @override
    def remove(self, name: str) -> None:
        with _as_oserror(self.directory), contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{name}")

    def _move(self, source: str, target: str) -> None:
        # Object stores have no rename: a copy appears whole, then the source is deleted.
        self._filesystem.cp_file(source, target)
        self._filesystem.rm_file(source)


def open_files(directory: str) -> Files:
    """Open a directory by a path, or by a URL of fsspec.

    Raises:
        SeedbedError: CONFIG: fsspec does not know the protocol, or the driver is not installed.
    """
    protocol, separator, rest = directory.partition("://")
    if not separator:
        return Files(directory)
    if protocol in ("file", "local"):
        return Files(rest)
    return RemoteFiles(directory)


@contextlib.contextmanager
def _as_oserror(directory: str) -> Iterator[None]:
    """Turn the exceptions of a driver's own classes into OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{directory}: {type(error).__name__}: {error}") from error
