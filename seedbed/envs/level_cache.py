"""Compiled maps of DeepMind Lab in a folder, which many processes and machines share."""

import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.files import TEMPORARY

# Lab's keys are a map's name and a checksum. No key leads out of the folder, or names a temporary.
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
# A copy takes seconds; an older temporary is that of a process which was killed.
_ABANDONED_S = 3600.0

log = logging.getLogger(__name__)


class LevelCache:
    """Level cache as `deepmind_lab.Lab` takes it (SEED, A.1.1).

    A map is written whole under a name of its own, and then renamed, so that no process reads a
    part of one, and two that write the same map do not meet. A folder that fails costs time and no
    episode: the map is compiled, and the log says so once for each kind of failure.

    Raises:
        SeedbedError: CONFIG, there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(
                f"environment.lab.level_cache {str(folder)!r} is no folder: make it, mount the "
                "volume there, or leave the setting out"
            )
        self._folder = folder
        self._warned: set[str] = set()
        with contextlib.suppress(OSError):  # of another process, or no longer there
            for path in folder.glob(f"{TEMPORARY}*"):
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    path.unlink()

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copy a map to `pk3_path`; return whether it was in the cache.

        Raises:
            ValueError: the key is no name of a file.
        """
        try:
            shutil.copyfile(self._path(key), pk3_path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._warn("read", error)
            # Lab compiles the map to the same path.
            Path(pk3_path).unlink(missing_ok=True)
            return False
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Put the map at `pk3_path` into the cache, unless it is there.

        Raises:
            ValueError: the key is no name of a file.
        """
        path = self._path(key)
        if path.exists():
            return
        temporary = ""
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=f"{TEMPORARY}{key}-", dir=self._folder)
            os.fchmod(descriptor, 0o644)  # actors of other users read it, too
            os.close(descriptor)
            shutil.copyfile(pk3_path, temporary)
            Path(temporary).replace(path)
        except OSError as error:
            self._warn("written", error)
            if temporary:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"the level cache's key {key!r} is no name of a file")
        return self._folder / key

    def _warn(self, done: str, error: OSError) -> None:
        kind = f"{done} {error.errno}"
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning(
                "environment.lab.level_cache %s cannot be %s, so that maps are compiled again: %s",
                *(self._folder, done, error),
            )
