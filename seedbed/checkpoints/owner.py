"""The owner of a folder of checkpoints, or of a run directory that is shared: one run.

A folder that several runs can reach, such as one in a bucket, would let one run resume from the
checkpoints of another one, and move those aside.
"""

import json
import secrets
from pathlib import Path
from typing import NamedTuple

from seedbed.checkpoints.files import open_files
from seedbed.checkpoints.format import CheckpointReadError
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.files import atomic_write

OWNER_FILE = "owner.json"
RUN_ID_FILE = "run-id"


class Owner(NamedTuple):
    """A run, as the owner of its checkpoints.

    Attributes:
        run: Path of the run directory, or NAMESPACE/RELEASE/RUN on a cluster.
        id: Number of the run directory, which a move of it keeps and a new directory does not.
    """

    run: str
    id: str


def owner_of(path: Path, name: str = "") -> Owner:
    """Return the owner that a run directory is; draw its id at the first call.

    Args:
        path: The run directory, absolute.
        name: NAMESPACE/RELEASE/RUN on a cluster; empty elsewhere.

    Raises:
        OSError: The id cannot be read or written.
    """
    file = path / RUN_ID_FILE
    if not file.exists():
        atomic_write(file, secrets.token_hex(8) + "\n")
    return Owner(name or str(path), file.read_text().strip())


def read_owner(directory: str) -> Owner | None:
    """Return the owner that a folder names; None where it names none.

    Raises:
        SeedbedError: RUN_DIRECTORY: the file is damaged. CHECKPOINT_READ: the folder cannot be
            read.
    """
    try:
        found = json.loads(open_files(directory).read(OWNER_FILE))
        return Owner(str(found["run"]), str(found["id"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointReadError(f"cannot read {directory}: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            f"{directory}/{OWNER_FILE}, which names the run of these checkpoints, cannot "
            f"be read: {error}"
        ) from error


class Claim:
    """The right of one run to write checkpoints into a folder.

    A run whose directory was lost is known by its name, and one that was moved by its id. A run of
    the same name takes the folder over; a process of the run before it, should it still live, ends
    at its next checkpoint.

    Args:
        directory: Local path, or a URL that fsspec reaches.
        owner: The run.
        key: Setting that names the folder.
    """

    def __init__(
        self, directory: str, owner: Owner, key: str = "learner.checkpoint.directory"
    ) -> None:
        self._directory, self._owner, self._key = directory, owner, key
        self._files = open_files(directory)

    def take(self) -> None:
        """Write the owner into the folder.

        Raises:
            SeedbedError: As `read_owner`; RUN_DIRECTORY: another run has it, or the file cannot be
                written.
        """
        if self.refuse_another() == self._owner:
            return
        try:
            self._files.write(OWNER_FILE, json.dumps(self._owner._asdict()).encode() + b"\n")
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {self._directory}/{OWNER_FILE}: {error}"
            ) from error

    def refuse_another(self) -> Owner | None:
        """Return the owner of the folder, if there is one and it is no other run.

        Raises:
            SeedbedError: As `read_owner`; RUN_DIRECTORY: another run has it.
        """
        found = read_owner(self._directory)
        if found is not None and found.run != self._owner.run and found.id != self._owner.id:
            raise RunDirectoryError(
                f"{self._directory} is the folder of the run {found.run}, and this run is "
                f"{self._owner.run}: choose another {self._key} or --run-dir (in "
                "the chart learner.persistence.checkpoints or learner.run). To begin with the "
                "parameters of that run, use --init-from; to take its place once it is over, "
                f"delete {self._directory}/{OWNER_FILE}"
            )
        return found

    def check(self) -> None:
        """Refuse to write where another run has taken the folder over since.

        Raises:
            SeedbedError: RUN_DIRECTORY; as `read_owner`, of a folder that may be readable later.
        """
        found = read_owner(self._directory)
        if found is not None and found != self._owner:
            raise RunDirectoryError(
                f"{self._directory} was taken over by another start of the run {found.run} (id "
                f"{found.id}, this one's is {self._owner.id}): two processes train one run, and "
                "this one ends without another checkpoint"
            )
