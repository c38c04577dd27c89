"""Copy of a run in a bucket, or in another folder that fsspec reaches, made at the run's end."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from seedbed.checkpoints.files import open_files
from seedbed.checkpoints.format import CheckpointReadError
from seedbed.checkpoints.owner import OWNER_FILE, Claim, Owner
from seedbed.runs.layout import PASSING
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.runtime.files import atomic_write, read_object
from seedbed.runtime.text import counted

log = logging.getLogger(__name__)

# In the run directory, once all of it is there; a run that goes on removes it.
UPLOADED_FILE = "uploaded.json"
# Before each new try of a file, in seconds.
_PAUSES_S = (1.0, 5.0, 20.0, 60.0)
_POLL_S = 0.2


class Upload:
    """Upload of one run. A file that was uploaded is sent again only when it has changed.

    Args:
        path: The run directory.
        url: Local path, or a URL that fsspec reaches; the run's alone.
        owner: The run.
        checkpoints: Folder of the checkpoints where it is outside of the run directory.
    """

    def __init__(self, path: Path, url: str, owner: Owner, checkpoints: str = "") -> None:
        self._path, self.url = path, url.rstrip("/")
        self._claim = Claim(self.url, owner, "learner.upload")
        self._checkpoints = checkpoints
        self._sent: dict[Path, tuple[int, int]] = {}  # size and time of change

    def claim(self) -> None:
        """Take the folder, before hours of training.

        Raises:
            SeedbedError: RUN_DIRECTORY: another run has it, or it cannot be written. CONFIG: the
                URL's driver is not installed, or the path is in the run directory.
        """
        if "://" not in self.url and Path(self.url).absolute().is_relative_to(self._path):
            raise ConfigError(
                f"learner.upload {self.url} is in the run directory {self._path}, which is copied "
                "there: name a place outside of it"
            )
        try:
            self._claim.take()
        except CheckpointReadError as error:  # it may be readable at the end
            log.warning("learner.upload cannot be reached yet: %s", error)

    @property
    def is_done(self) -> bool:
        """Whether the run, as it is, has been uploaded there."""
        return read_object(self._path / UPLOADED_FILE).get("url") == self.url

    def undo(self) -> None:
        """Note that the run goes on, so that what was uploaded is of an earlier end."""
        (self._path / UPLOADED_FILE).unlink(missing_ok=True)

    def send(self, gives_up: Callable[[], bool] = lambda: False) -> bool:
        """Upload what has changed; return whether all of it is there. A failure is logged.

        Args:
            gives_up: Returns whether not to wait for another try.
        """
        try:
            self._claim.take()
            for file, name in self._files():
                self._send_file(file, name, gives_up)
        except (OSError, SeedbedError) as error:
            log.error(
                "the run is not uploaded to %s: %s. It is whole in %s, and the same command "
                "uploads it",
                self.url,
                error,
                self._path,
            )
            return False
        return True

    def finish(self, gives_up: Callable[[], bool] = lambda: False) -> None:
        """Upload the rest of a run that is over, and note that all of it is there."""
        if not self.send(gives_up):
            return
        size = sum(size for size, _ in self._sent.values())
        note = {"url": self.url, "files": len(self._sent), "bytes": size, "time": time.time()}
        atomic_write(self._path / UPLOADED_FILE, json.dumps(note) + "\n")
        log.info("the run is in %s: %s", self.url, counted(len(self._sent), "file"))

    def _files(self) -> Iterator[tuple[Path, str]]:
        """Yield each file and its path below the URL, the checkpoints first."""
        found = [(file, file.relative_to(self._path)) for file in self._path.rglob("*")]
        if self._checkpoints and "://" not in self._checkpoints:
            folder = Path(self._checkpoints)
            found += [(file, "checkpoints" / file.relative_to(folder)) for file in folder.glob("*")]
        found.sort(key=lambda each: (each[1].parts[0] != "checkpoints", each[1]))
        for file, name in found:
            stays = any(fnmatch(part, pattern) for part in name.parts for pattern in PASSING)
            if file.is_file() and not stays and file.name not in (UPLOADED_FILE, OWNER_FILE):
                yield file, str(name)

    def _send_file(self, file: Path, name: str, gives_up: Callable[[], bool]) -> None:
        try:
            status = file.stat()
            changed = (status.st_size, status.st_mtime_ns)
            if self._sent.get(file) == changed:
                return
            content = file.read_bytes()
        except FileNotFoundError:  # an older checkpoint, which a newer one replaces
            return
        folder, _, last = name.rpartition("/")
        place = open_files(f"{self.url}/{folder}" if folder else self.url)
        for pause_s in (*_PAUSES_S, None):
            try:
                place.write(last, content)
                break
            except OSError as error:
                if pause_s is None or not _waits(pause_s, gives_up):
                    raise
                log.warning("%s is not uploaded: %s; again after %g s", name, error, pause_s)
        self._sent[file] = changed


def check_uploaded(upload: Upload | None, summary: Mapping[str, Any]) -> None:
    """Refuse to call a run a success whose upload has failed.

    Args:
        upload: The upload; None of a run without one.
        summary: The run's summary: what a signal has ended is uploaded at its end.

    Raises:
        SeedbedError: OUTPUT.
    """
    is_over = str(summary["stop_reason"]).startswith("stop.")
    if upload is not None and is_over and not upload.is_done:
        raise SeedbedError(
            ExitCode.OUTPUT,
            f"the run is over and whole, and not uploaded to {upload.url}: the log says why; the "
            "same command uploads it, also with another learner.upload",
        )


def _waits(seconds: float, gives_up: Callable[[], bool]) -> bool:
    """Wait, and return True; False as soon as there is to be no other try."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if gives_up():
            return False
        time.sleep(_POLL_S)
    return not gives_up()
