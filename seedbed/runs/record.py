"""The record of a run: what a start changes, and takes back if it steps no environment."""

import contextlib
import json
import logging
from pathlib import Path

from seedbed.runs.layout import learner_directories
from seedbed.runtime.files import atomic_write

log = logging.getLogger(__name__)

_FILES = ("history.json", "experiment.yaml", "summary.json")
_STATUS = "status.json"


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
        self._status = _content(path / _STATUS)
        self.aside: Path | None = None

    def has_stepped(self) -> bool:
        """Return whether the start has stepped an environment, as far as is known."""
        if learner_directories(self._path):
            return True
        status = _content(self._path / _STATUS)
        if status is None or status == self._status:
            return False
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return int(json.loads(status)["counters"]["env_frames"]) > self._env_frames
        return True

    def take_back(self) -> None:
        """Leave the record as it was before the start."""
        with contextlib.suppress(OSError):
            for name, content in self._files.items():
                if content is None:
                    (self._path / name).unlink(missing_ok=True)
                else:
                    atomic_write(self._path / name, content)
            if self.aside is not None:
                self.aside.unlink(missing_ok=True)
            if self._status is not None and self._files["summary.json"] is not None:
                atomic_write(self._path / _STATUS, self._status)  # the run is at its end still
            log.warning("%s is left as it was: this start has stepped no environment", self._path)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
