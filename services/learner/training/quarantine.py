"""Quarantine: the newest batches whose update was skipped, as files of a run directory."""

import logging
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.unroll_files import Arrays, UnrollDump, batch_arrays, save_batch

log = logging.getLogger(__name__)

MAX_FILES = 5
MAX_BYTES = 256 * 1024 * 1024
# Longest wait for a file at the end of a run, in seconds.
_CLOSE_S = 3.0


class Quarantine:
    """Writes batches in a thread of their own, one at a time, and deletes the oldest ones.

    Args:
        folder: where the files are kept; made with the first one.
        title: the experiment in words.
    """

    def __init__(self, folder: Path, title: str) -> None:
        self.folder = folder
        self._title = title
        self._writing: threading.Thread | None = None

    def keep(self, name: str, reason: str, arrays: Arrays, version: NDArray[np.float64]) -> None:
        """Begin to write a batch. It is dropped while another one is written, or if too large.

        Args:
            name: name of the file, without its ending.
            reason: why the update was skipped, in words.
            arrays: the batch on the host, which is never written to.
            version: `[B]`, version of the parameters that acted.
        """
        is_writing = self._writing is not None and self._writing.is_alive()
        if is_writing or sum(array.nbytes for array in arrays.values()) > MAX_BYTES:
            return
        self._writing = threading.Thread(
            target=self._write, args=(name, reason, arrays, version), name="quarantine", daemon=True
        )
        self._writing.start()

    def _write(self, name: str, reason: str, arrays: Arrays, version: NDArray[np.float64]) -> None:
        path = self.folder / f"{name}.npz"
        try:
            self.folder.mkdir(exist_ok=True)
            save_batch(path, UnrollDump(batch_arrays(arrays, version), self._title, reason))
            self._delete_oldest()
        except OSError as error:
            log.warning("the batch of a skipped update is not kept in %s: %s", path, error)
            return
        log.info("the batch of a skipped update is in %s: see `seedbed inspect unroll`", path)

    def _delete_oldest(self) -> None:
        files = sorted(self.folder.glob("[!.]*.npz"), key=lambda file: -file.stat().st_mtime_ns)
        total = 0
        for number, file in enumerate(files):
            total += file.stat().st_size
            if number >= MAX_FILES or total > MAX_BYTES:
                file.unlink()

    def close(self) -> None:
        """Wait for the file that is being written."""
        if self._writing is not None:
            self._writing.join(_CLOSE_S)
