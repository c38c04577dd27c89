"""Transfer of a release's run directories to a folder of this machine."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from seedbed.checkpoints.owner import OWNER_FILE, Owner, read_owner
from seedbed.deploy.programs import Piped, piped
from seedbed.deploy.reader_pod import Reader, reader_of
from seedbed.deploy.releases import Learner, Release
from seedbed.runs.layout import PASSING, learner_directory
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import TEMPORARY, atomic_write, read_object, replacing
from seedbed.runtime.formats import fill
from seedbed.runtime.shortage import cure
from seedbed.runtime.text import counted

# Connections in a row that break without one more whole file.
_TRIES = 5
_SENDER = Path(__file__).with_name("sender.py")


class _BrokenConnection(Exception):
    """The stream has ended before its end."""


def fetch(release: Release, directory: Path, print_line: Callable[[str], None]) -> None:
    """Bring the run of a release, all learners of it, into a folder, or what the folder lacks.

    A file appears under its name once it is whole and its sum is right, so the same call goes on
    after any end.

    Args:
        release: The release.
        directory: A folder that is empty, missing, or of an earlier call for the same run.
        print_line: Takes lines on what happens.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder has something else; OUTPUT, it cannot be written;
            DEPLOY, the volume cannot be read.
    """
    learners = release.learners()
    is_new = _take_folder(directory, release)
    run = Run(release, learners, release.run, len(learners) > 1)
    fetch_run(run, directory, print_line, is_new)


class Run(NamedTuple):
    """A run on the volumes of a release.

    Attributes:
        release: The release.
        learners: Its learners.
        owner: NAMESPACE/RELEASE/RUN, which owns the run's directory.
        is_several: Each learner has a folder in the run's; one whose volume is gone, too.
    """

    release: Release
    learners: Sequence[Learner]
    owner: str
    is_several: bool


def fetch_run(run: Run, directory: Path, print_line: Callable[[str], None], is_new: bool) -> None:
    """Bring a run into its run directory here, or what that lacks.

    Args:
        run: The run.
        directory: The run directory.
        print_line: Takes lines on what happens.
        is_new: Nothing is in it but its owner's mark.

    Raises:
        SeedbedError: As `fetch`.
    """
    learners = run.learners
    for learner in learners:
        target = learner_directory(directory, learner.rank) if run.is_several else directory
        Transfer(Source(run.release, learner, run.owner), target, print_line, is_new).run()
        if run.is_several and not learner.rank:  # what makes the folder of all a run
            for name in ("experiment.yaml", "seedbed.lock"):
                _write(directory / name, (target / name).read_bytes())


def _take_folder(directory: Path, release: Release) -> bool:
    """Mark the folder with the run's owner; return whether nothing was in it.

    Raises:
        SeedbedError: RUN_DIRECTORY, it has something else; OUTPUT, it cannot be written.
    """
    owner = Owner(release.run, release.run)
    if directory.exists() and not directory.is_dir():
        raise RunDirectoryError(f"{directory} is a file: name another DIR")
    if directory.is_dir() and any(directory.iterdir()):
        found = read_owner(str(directory))
        if found != owner:
            has = f"the run {found.run}" if found else "something else"
            raise RunDirectoryError(
                f"{directory} has {has} in it, and not the run {owner.run}: name an empty folder, "
                "or one that does not exist"
            )
        return False
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(directory, error) from error
    _write(directory / OWNER_FILE, json.dumps(owner._asdict()).encode() + b"\n")
    return True


class NotBegun(RunDirectoryError):
    """A volume has no run directory yet."""


class Source(NamedTuple):
    """A folder on a volume.

    Attributes:
        release: The release.
        learner: What has the volume: a learner, or the controller of a set.
        owner: NAMESPACE/RELEASE/RUN, which owns the folder; empty where no run does.
        leave: Patterns of names that stay there.
        skip: Folders below it that stay there.
    """

    release: Release
    learner: Learner
    owner: str
    leave: Sequence[str] = PASSING
    skip: Sequence[str] = ()


class Transfer:
    """Transfer of a folder on a volume to this machine.

    Args:
        source: The folder there.
        target: Folder of the files here.
        print_line: Takes lines on what happens.
        is_new: Nothing was in the folder but its owner's mark.
    """

    def __init__(
        self, source: Source, target: Path, print_line: Callable[[str], None], is_new: bool
    ) -> None:
        self._source, self._target = source, target
        self._release, self._learner = source.release, source.learner
        self._print, self._is_new = print_line, is_new
        self._whole: dict[Path, int] = {}
        self._new = 0
        self._here: dict[str, tuple[int, str]] = {}  # size and SHA-256, of the present folder

    def run(self) -> frozenset[Path]:
        """Bring every file, over as many connections as that takes; return those that are there.

        Raises:
            SeedbedError: as `fetch`.
        """
        for source, place in self._folders():
            tries, self._here = 0, _sums(place, self._source.skip)
            while tries < _TRIES:
                before = self._new
                try:
                    self._connect(source, place)
                    break
                except _BrokenConnection as broken:
                    tries = tries + 1 if self._new == before else 1
                    self._print(f"again, for what is missing: {broken}")
            else:
                raise SeedbedError(
                    ExitCode.DEPLOY,
                    f"{counted(_TRIES, 'connection')} to the volume of {self._release.name} have "
                    f"broken without one more whole file; {self._target} has "
                    f"{counted(len(self._whole), 'whole file')}, and the same command goes on",
                )
        size = sum(self._whole.values())
        text = "{name}: {files:n} files, {size:MB}, of which {new:n} are new"
        new = len(self._whole) if self._is_new else self._new
        numbers = {"files": len(self._whole), "size": size, "new": new}
        self._print(fill(text, {"name": str(self._target), **numbers}))
        self._name_checkpoints()
        owner = self._source.owner
        found = read_owner(str(self._target)) if owner else None
        if found is not None and found.run != owner:
            self._print(
                f"the folder {self._learner.run_dir} is of the run {found.run}, and not of "
                f"{owner}, whose learner.run names it"
            )
        return frozenset(self._whole)

    def _folders(self) -> list[tuple[str, Path]]:
        """Return the folders in the pod, and the places of their files here."""
        learner = self._learner
        folders = [(learner.run_dir, self._target)]
        below = PurePosixPath(learner.mount)
        if learner.checkpoints and PurePosixPath(learner.checkpoints).is_relative_to(below):
            folders.append((learner.checkpoints, self._target / "checkpoints"))
        return folders

    def _name_checkpoints(self) -> None:
        if "://" in (url := self._learner.checkpoints):
            self._print(f"its checkpoints are in {url}, where `seedbed evaluate` reads them")

    def _connect(self, source: str, place: Path) -> None:
        """Bring what one connection brings.

        Raises:
            _BrokenConnection: it has ended too early.
        """
        with reader_of(self._release, self._learner, self._print) as reader:
            asked = {
                "root": self._path(reader, source),
                "leave": self._source.leave,
                "skip": self._source.skip,
                "have": self._here,
            }
            command = (
                "kubectl", f"--namespace={self._release.namespace}", "exec", "-i", reader.pod,
                f"--container={reader.container}", "--", "python", "-c", _SENDER.read_text(),
            )  # fmt: skip
            try:
                with piped(*command, stdin=json.dumps(asked).encode() + b"\n") as stream:
                    self._receive(stream, place)
            except SeedbedError as error:
                if error.code is not ExitCode.DEPLOY:
                    raise
                raise _BrokenConnection(str(error)) from error

    def _path(self, reader: Reader, source: str) -> str:
        inner = PurePosixPath(source).relative_to(self._learner.mount)
        return str(PurePosixPath(reader.mount) / inner)

    def _receive(self, stream: Piped, place: Path) -> None:
        first = _line(stream)
        if "missing" in first:
            raise NotBegun(
                f"{self._release.name} has no {first['missing']} on its volume yet: its learner "
                "has not begun"
            )
        for problem in first["unreadable"]:
            self._print(f"not readable in the pod, and left there: {problem}")
        was_cut = False
        while not (head := _line(stream)).get("end"):
            if "gone" in head:  # an older checkpoint, of which there is a newer one by now
                was_cut = True
                continue
            path = _inside(place, head["file"])
            if head.get("same"):
                self._whole[path] = path.stat().st_size
            elif not self._receive_file(stream, place, path, int(head["bytes"])):
                was_cut = True
        if was_cut:
            raise _BrokenConnection("a file was replaced while it was sent")

    def _receive_file(self, stream: Piped, place: Path, path: Path, size: int) -> bool:
        """Write a file whole, and return True; leave it out where it was cut in the pod."""
        digest, left = hashlib.sha256(), size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary, temporary.open("wb") as file:
                for chunk in stream.take(size):
                    digest.update(chunk)
                    file.write(chunk)
                    left -= len(chunk)
                file.flush()
                if left:
                    raise _BrokenConnection(f"{left} of {size} bytes of {path.name} are missing")
                sent = _line(stream)["sha256"]
                if sent is None:
                    raise _Cut
                if sent != digest.hexdigest():
                    raise _BrokenConnection(f"the SHA-256 of {path.name} is not that in the pod")
                _check_history(path, temporary)
        except _Cut:
            return False
        except OSError as error:
            raise unwritable(path, error, size) from error
        self._whole[path] = size
        self._here[str(path.relative_to(place))] = (size, digest.hexdigest())
        self._new += 1
        return True


class _Cut(Exception):
    """A file has become shorter while it was sent."""


def _line(stream: Piped) -> dict[str, Any]:
    try:
        return dict(json.loads(stream.line()))
    except ValueError as error:
        raise _BrokenConnection("it ended too early") from error


def _inside(place: Path, file: str) -> Path:
    """Return the path of a file that a pod names, which is below the folder.

    Raises:
        SeedbedError: RUN_DIRECTORY, it is not.
    """
    inner = PurePosixPath(file)
    if inner.is_absolute() or ".." in inner.parts or not inner.parts:
        raise RunDirectoryError(f"the pod names a file outside of the run directory: {file!r}")
    return place / inner


def _sums(place: Path, skip: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return size and SHA-256 of each file here, but for those of some folders below it."""
    found, left_out = {}, {place / folder for folder in skip}
    for path in place.rglob("*") if place.is_dir() else ():
        if left_out.intersection(path.parents):
            continue
        if path.is_file() and not path.name.startswith(TEMPORARY):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[str(path.relative_to(place))] = (path.stat().st_size, digest)
    return found


def _check_history(path: Path, new: Path) -> None:
    """Refuse to replace the files of a run that has gone on here.

    Raises:
        SeedbedError: RUN_DIRECTORY.
    """
    if path.name != "history.json" or not path.exists():
        return
    here, there = ({start["time"] for start in read_object(file)["starts"]} for file in (path, new))
    if max(here, default=0.0) > max(there, default=0.0):
        raise RunDirectoryError(
            f"the run in {path.parent} was started again here, after the last start on the "
            "cluster: name another DIR"
        )


def _write(path: Path, content: bytes) -> None:
    try:
        atomic_write(path, content)
    except OSError as error:
        raise unwritable(path, error, len(content)) from error


def unwritable(path: Path, error: OSError, size: int = 0) -> SeedbedError:
    """Return the error of a file that cannot be written.

    Args:
        path: The file.
        error: What was raised.
        size: Its bytes; 0 where that is not what was missing.
    """
    room = ""
    if size:
        free = shutil.disk_usage(path.parent).free
        room = f" of {size:,} bytes, where {free:,} are free"
    return SeedbedError(
        ExitCode.OUTPUT,
        f"cannot write {path}{room}: {error.strerror or error}; {cure(error)}. Whole files stay, "
        "and the same command goes on",
    )
