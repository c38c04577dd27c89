"""The record of a run: what a start changes, and takes back if it steps no environment."""

import contextlib
import json
import logging
import time
from pathlib import Path

from seedbed.runs.history import provenance
from seedbed.runs.layout import learner_directories
from seedbed.runtime.files import atomic_write
from seedbed.telemetry.status import STATUS_FILE, read_status, this_process, write_status

log = logging.getLogger(__name__)

_FILES = ("history.json", "experiment.yaml", "summary.json")


class Record:
    """The record of a run as it is before a start.

    Args:
        path: The run directory.
        env_frames: Frames with which the start continues.

    Attributes:
        aside: Where the start has moved the experiment of before; None where it has not.
    """

    def __init__(self, path: Path, env_frames: int) -> None:
        self._path, self._env_frames = path, env_frames
        self._files = {name: _content(path / name) for name in _FILES}
        self._status = _content(path / STATUS_FILE)
        self.aside: Path | None = None
        self._noted: bytes | None = None

    def note_start(self) -> None:
        """Let the status name this start, so that a kill before its first step is seen."""
        with contextlib.suppress(OSError, ValueError):
            status = read_status(self._path)
            status["state"], status["waiting_for"] = "waiting", "the first step"
            status["over"] = status["stop_reason"] = status["eta"] = None
            status["time"], status["process"] = time.time(), this_process()
            status["provenance"] = provenance(self._path)
            write_status(self._path, status)
            self._noted = _content(self._path / STATUS_FILE)

    def has_stepped(self) -> bool:
        """Return whether the start has stepped an environment, as far as is known."""
        if learner_directories(self._path):
            return True
        status = _content(self._path / STATUS_FILE)
        if status is None or status in (self._status, self._noted):
            return False
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return int(json.loads(status)["counters"]["env_frames"]) > self._env_frames
        return True

    def take_back(self) -> None:
        """Leave the record as it was before the start."""
        for name, content in self._files.items():
            with contextlib.suppress(OSError):
                if content is None:
                    (self._path / name).unlink(missing_ok=True)
                elif content != _content(self._path / name):
                    atomic_write(self._path / name, content)
        with contextlib.suppress(OSError):
            if self.aside is not None:
                self.aside.unlink(missing_ok=True)
            is_at_end = self._files["summary.json"] is not None
            is_noted = _content(self._path / STATUS_FILE) == self._noted
            if self._status is not None and (is_at_end or is_noted):
                atomic_write(self._path / STATUS_FILE, self._status)
            log.warning("%s is left as it was: this start has stepped no environment", self._path)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
