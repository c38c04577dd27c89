"""The run directory: opened by one process, resumed, and never deleted unasked.

NAME/
  seedbed.lock      marks a run directory of Seedbed; locked while a learner runs
  experiment.yaml   resolved; experiment.1.yaml ... are of earlier starts
  history.json      each start: command, version, packages, machine, changed settings
  xla-cache/        with JAX: compiled functions, for a faster restart; may be deleted
  checkpoints/  logs/  tensorboard/  progress.csv  status.json
  devices.json      the roles of the devices, where the learner has chosen them
  summary.json      once a stop condition was met: the JSON that the run printed at the end
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

from seedbed.checkpoints.format import Checkpoint
from seedbed.checkpoints.owner import OWNER_FILE, RUN_ID_FILE, Claim, Owner, owner_of, read_owner
from seedbed.checkpoints.store import CheckpointStore
from seedbed.config import Experiment
from seedbed.config.load import dump_experiment
from seedbed.rpc.local.addresses import SUFFIX
from seedbed.runs.history import Start, append_start, fingerprint, read_history
from seedbed.runs.layout import (
    checkpoint_directory,
    learner_directories,
    socket_path,
)
from seedbed.runs.record import Record
from seedbed.runs.resume import (
    Change,
    check_identity,
    check_resume,
    compare,
    digest,
    keep_recorded,
    named,
    named_by,
    read_stored,
    result_changes,
)
from seedbed.runs.stop import MetCondition, end_of
from seedbed.runs.stored import open_store, read_checkpoint
from seedbed.runs.upload import UPLOADED_FILE, Upload
from seedbed.runs.ways_on import WaysOn
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import atomic_write, make_directory, read_object, sync_directory
from seedbed.runtime.locks import Lock, LockHeld
from seedbed.runtime.paths import absolute, shown
from seedbed.runtime.shortage import cure, is_shortage, keep_spare_descriptors
from seedbed.runtime.text import counted

log = logging.getLogger(__name__)

_LOCK = "seedbed.lock"

Restart = Literal["resume", "fresh", "overwrite"]

# Folder of compiled functions, which a restart loads.
COMPILED_FOLDER = "xla-cache"

# Files that `overwrite` may delete, and no others. The store deletes checkpoints.
_OWN_FILES = (
    "experiment.yaml",
    "experiment.*.yaml",
    "history.json",
    "history.json.damaged",
    "progress.csv",
    "evaluations.csv",
    "trace.csv",
    "status.json",
    "summary.json",
    UPLOADED_FILE,
    "devices.json",
    ".tmp-*",
    OWNER_FILE,
    RUN_ID_FILE,
    "wandb-run-id",
    "wandb-step",
    "wandb-points.jsonl",
    "learner.sock",
    "learner.sock.shm",
    "logs/*.log",
    "logs/*.log.[0-9]",
    "logs/*.json",
    "gossip/learners",
    "gossip/events.csv",
    "gossip/snapshot-*.npy",
    "gossip/gradient-*.npy",
    "tensorboard/events.out.tfevents.*",
    f"{COMPILED_FOLDER}/*-cache",
    f"{COMPILED_FOLDER}/*-atime",
    "checkpoints/.tmp-*",
    "checkpoints/checkpoint-*.safetensors.aside",
)
# Without these a summary is damaged, and is made anew from the checkpoint.
_SUMMARY_KEYS = {"env_frames", "updates", "stop_reason", "evaluation"}


class RunDirectory:
    """Open run directory. `close` it, or use it as a context.

    Attributes:
        path: The directory, absolute.
        logs: Folder of the log files.
        experiment_yaml: File of the resolved experiment.
        socket: Path of the unix socket; listen on `unix:` plus the path.
        store: Checkpoints of this run.
        experiment: Settings of this start, with what the run's record keeps.
        changes: Settings that differ from the record.
        compared_with: Path of the record.
        named: Paths of the settings that the file or the command of this start has named.
        finished: Summary of a run that is at its end, which was left as it is; else None.
        met: Stop condition by which that run is at its end.
        resume_from: Newest checkpoint, where there is one to go on from. Set it to None when it
            is loaded, to free the memory.
        init_from: Path of the run whose parameters the run has begun with; empty without any.
        before: Record of the run before this start; None where the run begins.
        upload: Copy of the run that its end makes; None without one.
        start_from: Checkpoint of `--init-from`, where a run begins from other parameters. Set it
            to None when it is loaded.
    """

    def __init__(
        self, path: Path, lock: Lock, store: CheckpointStore, experiment: Experiment
    ) -> None:
        self.path = path
        self.experiment = experiment
        self.changes: list[Change] = []
        self.compared_with = ""
        self.named: set[str] = set()
        self.logs = path / "logs"
        self.experiment_yaml = path / "experiment.yaml"
        self.socket = socket_path(path)
        self.store = store
        self._lock: Lock | None = lock
        self.finished: dict[str, Any] | None = None
        self.met: MetCondition | None = None
        self.resume_from: Checkpoint | None = None
        self.init_from = ""
        self.before: Record | None = None
        self.start_from: Checkpoint | None = None
        self.upload: Upload | None = None

    def report_resume(self) -> None:
        """Print on stderr what the run goes on from, and every setting that has changed."""
        for change in self.changes:
            print(f"resume: {change.text} since {self.compared_with}", file=sys.stderr)
        if (newest := self.resume_from) is not None:
            print(
                f"resume: from {newest.path} after {counted(newest.updates, 'update')}",
                file=sys.stderr,
            )

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json as a whole.

        Raises:
            OSError: The file cannot be written.
        """
        atomic_write(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")

    def remove_summary(self) -> None:
        """Remove the summary of an earlier end, if there is one, as the run goes on."""
        with contextlib.suppress(OSError):
            (self.path / "summary.json").unlink(missing_ok=True)
            if self.upload is not None:
                self.upload.undo()

    def read_summary(self) -> dict[str, Any] | None:
        """Return the summary of `write_summary`; None where there is none, or it is damaged."""
        summary = read_object(self.path / "summary.json")
        return summary if summary.keys() >= _SUMMARY_KEYS else None

    def last_counters(self) -> dict[str, float]:
        """Read the counters that the last process wrote into status.json; empty without any."""
        return dict(self.last_status().get("counters") or {})

    def last_status(self) -> dict[str, Any]:
        """Read the status.json that the last process wrote; empty without any."""
        return read_object(self.path / "status.json")

    def close(self) -> None:
        """Release the lock, once."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.before is not None and not self.before.has_stepped():
            self.before.take_back()
        self.close()


def open_run_directory(
    path: str | Path,
    experiment: Experiment,
    restart: Restart = "resume",
    init_from: str | None = None,
    accepted: str = "",
    command: Sequence[str] = (),
    set_here: Sequence[str] | None = None,
    may_be_finished: bool = False,
    owner: str | None = "",
    adopt: str = "",
) -> RunDirectory:
    """Lock a run directory for this process, and find the checkpoint that the run begins with.

    Args:
        path: The run directory; made where it is missing.
        experiment: Settings of this start.
        restart: `resume` goes on from the newest checkpoint, or begins where there is none.
            `fresh` moves the run that is there to NAME.1, NAME.2, ... and begins. `overwrite`
            deletes the run's own files and begins.
        init_from: Run directory or checkpoint file whose parameters a new run begins with; not
            used by a run that goes on.
        accepted: As of `check_resume`.
        command: Words of the command line, for messages and for the run's history.
        set_here: The `a.b=c` of `--set` where the experiment is the run's own file, which has every
            key; None of another file.
        may_be_finished: Leave a run that is at its end as it is, with `finished` set.
        owner: Name of the run as the owner of checkpoints that are elsewhere: NAMESPACE/RELEASE/RUN
            on a cluster. Empty takes the path; None is a process that writes no checkpoints.
        adopt: Folder from whose checkpoints a run without any goes on, if they are of a run of the
            same name that no owner is known of.

    Raises:
        SeedbedError: RUN_DIRECTORY (in use, or not a run), RESUME_REFUSED, CHECKPOINT_READ.
    """
    path = absolute(path)
    _check_ours(path)
    if owner:  # while its learner runs, too, which the lock alone would name
        Claim(str(path), Owner(owner, owner)).refuse_another()
    lock = _acquire(path)
    keep_spare_descriptors()
    import safetensors.numpy  # noqa: F401  # a checkpoint's module; it takes a descriptor, too

    try:
        if restart == "fresh":
            lock = _archive(path, lock)
        keep = experiment.learner.checkpoint.keep
        store = CheckpointStore(checkpoint_directory(path, experiment), keep)
        directory = RunDirectory(path, lock, store, experiment)
        directory.named = named(experiment)
        if owner:  # on a cluster, where volumes and buckets are shared
            Claim(str(path), Owner(owner, owner)).take()
        if experiment.learner.checkpoint.directory and owner is not None:
            _claim(directory, owner)
        if experiment.learner.upload and owner is not None:
            directory.upload = _claim_upload(directory, owner)
        if restart == "fresh":
            # Checkpoints in another directory were not moved with the run.
            if aside := store.archive():
                print(f"fresh: the checkpoints were moved to {aside}", file=sys.stderr)
        elif restart == "overwrite":
            _delete_own(directory)
        else:
            starts = read_history(path)["starts"]
            _resume(directory, starts, accepted, command, set_here, adopt)
            _check_init(directory, starts, init_from, command)
            if may_be_finished:
                summary = directory.read_summary()
                directory.met = end_of(summary, directory.experiment)
                if directory.met is not None:
                    directory.finished = summary
                    return directory
            directory.report_resume()
        if init_from is not None and directory.resume_from is None:
            directory.start_from = read_checkpoint(init_from)
            directory.init_from = _address(init_from)
            print(f"init: from {directory.start_from.path}", file=sys.stderr)
        try:
            _prepare(directory, command)
        except OSError as error:
            if directory.before is not None:
                directory.before.take_back()
            raise RunDirectoryError(
                f"cannot write to {directory.path}: {error.strerror}; {cure(error)}"
            ) from error
        return directory
    except BaseException:
        lock.release()
        raise


def _acquire(path: Path) -> Lock:
    """Take the lock of a run directory, and make the directory where it is missing.

    Raises:
        SeedbedError: RUN_DIRECTORY: another process holds the lock, or the directory cannot be
            used.
    """
    try:
        make_directory(path)
        if not (path / _LOCK).exists():
            (path / _LOCK).touch()
            sync_directory(path)  # a run without it would be refused as none
    except OSError as error:
        raise RunDirectoryError(
            f"cannot make the run directory {path}: {error.strerror}; {cure(error)}"
        ) from error
    try:
        lock = Lock(path / _LOCK)
    except LockHeld as holder:
        raise RunDirectoryError(
            f"the run directory {path} is in use by {holder}, or choose another --run-dir"
        ) from None
    except OSError as error:
        way = cure(error) if is_shortage(error) else "choose a --run-dir on a local disk"
        raise RunDirectoryError(f"{path} cannot be locked: {error.strerror}; {way}") from error
    if not _is_at(lock, path):
        lock.release()
        raise RunDirectoryError(
            f"the run directory {path} was moved while it was opened, by a --restart fresh: "
            "run the same command again"
        )
    return lock


def _is_at(lock: Lock, path: Path) -> bool:
    try:
        there = (path / _LOCK).stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(lock.file), there)


def _check_ours(path: Path) -> None:
    """Refuse a path that holds something other than a run."""
    if not path.exists():
        return
    if not path.is_dir():
        raise RunDirectoryError(f"{path} is a file, not a run directory")
    # Another host of the learner may have been here first.
    names = {entry.name for entry in path.iterdir() if not entry.match("host-[0-9]*")}
    if names - {"lost+found"} and _LOCK not in names:
        raise RunDirectoryError(
            f"{path} is not empty and no run of Seedbed (it has no {_LOCK}, but "
            f"{sorted(names)[0]!r} and so on): choose another --run-dir"
        )


def _archive(path: Path, lock: Lock) -> Lock:
    """Rename the whole directory, in one atomic step, and lock a new one in the same place."""
    names = {entry.name for entry in path.iterdir() if not entry.match(f"{_LOCK}.*")}
    if names <= {_LOCK, "lost+found"}:
        return lock
    aside = _first_free(path.with_name(f"{path.name}.{n}") for n in count(1))
    try:
        path.rename(aside)
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be moved to {aside} ({error.strerror}): choose another --run-dir"
        ) from error
    print(f"fresh: the run before was moved to {aside}", file=sys.stderr)
    fresh = _acquire(path)
    lock.release()
    return fresh


def _delete_own(directory: RunDirectory) -> None:
    """Delete the checkpoints and `_OWN_FILES`."""
    for name in ("checkpoints", "logs", "tensorboard"):
        if (directory.path / name).is_symlink():
            raise RunDirectoryError(
                f"{directory.path / name} is a symbolic link, and --restart overwrite deletes "
                "nothing outside of the run directory: say --restart fresh"
            )
    deleted = len(directory.store.delete_all())
    for pattern in _OWN_FILES:
        for file in directory.path.glob(pattern):
            if not file.is_dir():
                file.unlink()
                deleted += 1
    print(f"overwrite: {deleted} files of the run before were deleted", file=sys.stderr)


def _resume(
    directory: RunDirectory,
    starts: Sequence[Start],
    accepted: str,
    command: Sequence[str],
    set_here: Sequence[str] | None,
    adopt: str,
) -> None:
    """Set `resume_from`, `experiment` and `changes`, if the experiment may resume the run."""
    recorded = set(starts[-1]["named"]) if starts else None
    if set_here is not None:
        directory.named = named_by(set_here) | (recorded or set())
    newest = directory.store.newest()
    record = _record(directory)
    if newest is None and record is not None:
        # learner.checkpoint.directory may have changed: go on from the old directory.
        elsewhere = CheckpointStore(checkpoint_directory(directory.path, record))
        if elsewhere.directory != directory.store.directory:
            newest = elsewhere.newest()
    if newest is None and record is None and adopt:
        newest = _unowned(adopt, directory)
    if newest is None and not _has_frames(directory):
        return  # nothing was measured with other settings
    source, own = str(directory.experiment_yaml), shown(directory.path)
    stored = None if newest is None else _settings_of(newest)
    if record is None or _is_edited(directory, starts):
        checkpoint = newest or _of_a_learner(directory)
        if checkpoint is not None:  # it has the settings with which it was trained
            edited, source = record, checkpoint.path
            record = stored or _settings_of(checkpoint)
            differing = set() if edited is None else {c.key for c in compare(record, edited)}
            if differing:
                own = ""
            if set_here is not None:
                directory.named |= differing
    if record is None:
        return
    experiment = keep_recorded(record, directory.experiment, directory.named, recorded, source)
    directory.experiment = experiment
    ways = _ways_on(directory, command, own)
    directory.changes = check_resume(record, experiment, source, accepted, ways)
    directory.compared_with = source
    if newest is not None and stored is not None:
        check_identity(stored, experiment, newest.path)
    directory.resume_from = newest


def _owner(directory: RunDirectory, name: str) -> Owner:
    try:
        return owner_of(directory.path, name)
    except OSError as error:
        raise RunDirectoryError(
            f"cannot write to {directory.path}: {error.strerror}; {cure(error)}"
        ) from error


def _claim_upload(directory: RunDirectory, name: str) -> Upload:
    """Make the run the owner of the folder to which its end copies it.

    Raises:
        SeedbedError: RUN_DIRECTORY: it is another run's.
    """
    learner, owner = directory.experiment.learner, _owner(directory, name)
    upload = Upload(directory.path, learner.upload, owner, learner.checkpoint.directory)
    upload.claim()
    return upload


def _claim(directory: RunDirectory, name: str) -> None:
    """Make the run the owner of its checkpoints, which are outside of its directory.

    Raises:
        SeedbedError: RUN_DIRECTORY: they are another run's.
    """
    owner = _owner(directory, name)
    store, record = directory.store, _record(directory)
    claim = Claim(store.directory, owner)
    is_own = record is not None and checkpoint_directory(directory.path, record) == store.directory
    if (
        not is_own
        and read_owner(store.directory) is None
        and (newest := store.newest()) is not None
    ):
        found = _settings_of(newest).name
        if found != directory.experiment.name:
            raise RunDirectoryError(
                f"{store.directory} has the checkpoints of a run with the name {found}, and this "
                f"one's is {directory.experiment.name}: give this run another "
                "learner.checkpoint.directory"
            )
    claim.take()
    store.claim = claim


def _unowned(folder: str, directory: RunDirectory) -> Checkpoint | None:
    """Return the newest checkpoint of a folder without an owner, of a run with the same name."""
    store = CheckpointStore(folder)
    if read_owner(folder) is not None:
        return None
    newest = store.newest()
    is_same = newest is not None and _settings_of(newest).name == directory.experiment.name
    return newest if is_same else None


def _check_init(
    directory: RunDirectory,
    starts: Sequence[Start],
    init_from: str | None,
    command: Sequence[str],
) -> None:
    """Refuse parameters to begin with that are not those with which the run has begun.

    Raises:
        SeedbedError: RESUME_REFUSED.
    """
    if directory.resume_from is None and not _has_frames(directory):
        return  # a start that failed leaves its path in the history
    directory.init_from = starts[-1].get("init_from", "") if starts else ""
    if init_from is None or _address(init_from) == directory.init_from:
        return
    if not starts:  # the history was lost, and the path with it
        print(f"init: {init_from} is not used, since the run resumes", file=sys.stderr)
        return
    began = f"from {directory.init_from}" if directory.init_from else "from no other run"
    lines = [
        f"{directory.path} began {began}, and --init-from is {init_from}: leave it out to resume "
        "the run, or begin a new one",
        *_ways_on(directory, command).new_run(),
    ]
    raise SeedbedError(ExitCode.RESUME_REFUSED, "\n".join(lines))


def _ways_on(directory: RunDirectory, command: Sequence[str], run: str = "") -> WaysOn:
    """Return the ways on of a refused command; `run` as of `WaysOn`."""
    checkpoints = directory.experiment.learner.checkpoint.directory
    return WaysOn(command, _free_name(directory.path), run, checkpoints)


def _address(path: str) -> str:
    """Return the absolute path of a run, or its address."""
    return path if "://" in path else str(absolute(path))


def _is_edited(directory: RunDirectory, starts: Sequence[Start]) -> bool:
    """Return whether experiment.yaml is not known to be as the last start left it."""
    known = starts[-1]["experiment"] if starts else None
    return fingerprint(directory.experiment_yaml.read_text()) != known


def _of_a_learner(directory: RunDirectory) -> Checkpoint | None:
    """Return the newest checkpoint of the first of several learners that has one."""
    found = (open_store(learner).newest() for learner in learner_directories(directory.path))
    return next((checkpoint for checkpoint in found if checkpoint is not None), None)


def _settings_of(checkpoint: Checkpoint) -> Experiment:
    return read_stored(str(checkpoint.meta["experiment"]), checkpoint.path)


def _record(directory: RunDirectory) -> Experiment | None:
    """Read the experiment that the run records; None where there is none."""
    stored = directory.experiment_yaml
    return read_stored(stored.read_text(), str(stored)) if stored.exists() else None


def _has_frames(directory: RunDirectory) -> bool:
    """Return whether the run, or one of its learners, has counted a frame."""
    learners = learner_directories(directory.path)
    if any((learner / "checkpoints").is_dir() for learner in learners):
        return True
    has_summary = (directory.path / "summary.json").exists()
    return has_summary or bool(directory.last_counters().get("env_frames"))


def _free_name(path: Path) -> str:
    """Return a path beside a run's that does not exist, for another run."""
    return shown(_first_free(path.with_name(f"{path.name}-{n}") for n in count(2)))


def _first_free(paths: Iterable[Path]) -> Path:
    return next(path for path in paths if not path.exists())


def _prepare(directory: RunDirectory, command: Sequence[str]) -> None:
    """Make the subdirectories, write the experiment, delete the sockets of a killed learner."""
    directory.logs.mkdir(exist_ok=True)
    (directory.path / "tensorboard").mkdir(exist_ok=True)
    for suffix in ("", SUFFIX):
        Path(f"{directory.socket}{suffix}").unlink(missing_ok=True)
    resumed = directory.resume_from
    counters = resumed.meta["counters"] if resumed is not None else {}
    changes = result_changes(directory.changes)
    current = directory.experiment_yaml
    text = dump_experiment(directory.experiment)
    before = Record(directory.path, int(counters.get("env_frames", 0)))
    if current.exists():
        directory.before = before
    append_start(
        directory.path,
        command,
        sorted(directory.named),
        counters,
        changes,
        digest(changes),
        text,
        directory.init_from,
    )
    if current.exists():
        if current.read_text() != text:
            before.aside = _first_free(directory.path / f"experiment.{n}.yaml" for n in count(1))
            current.rename(before.aside)
        before.note_start()
    if not current.exists():  # a full volume would refuse what is there already
        atomic_write(current, text)
