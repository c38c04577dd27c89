"""The folder of a set.

DIR/
  NAME.yaml            an experiment, as `seedbed train` takes it
  runs/NAME/           its run directory
  runs/NAME.log        what `seedbed train` has written to stderr
  set/sweep.yaml       what varies
  set/experiment.yaml  the experiment, with the settings of every run
  set/runs.json        the runs with their values, in the order in which they were added
  set/lock             locked while a process drives the set

A folder with experiments alone is a set, too.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.config import Experiment, load_experiment
from seedbed.config.keys import is_within
from seedbed.config.load import dump_experiment, run_of
from seedbed.config.run import Stop
from seedbed.config.yaml_text import dump_yaml
from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.layout import learner_directories
from seedbed.runs.resume import Change, compare, read_stored, with_value
from seedbed.runs.totals import Totals, totals_of
from seedbed.runtime.exit_codes import (
    ConfigError,
    ExitCode,
    RunDirectoryError,
    SeedbedError,
)
from seedbed.runtime.files import atomic_write, read_object, version_of
from seedbed.runtime.locks import Lock, LockHeld
from seedbed.sets.identity import defaults_digest, digest
from seedbed.sets.resolve import ResolvedSet, Run, describe, renamed
from seedbed.sets.sweep import Sweep, read_sweep
from seedbed.settings import FREE

_OWN = "set"
_WRITING_S = 30.0  # a write of 1,000 files takes a second


class Rung(NamedTuple):
    """Where a run of a set with successive halving stops, to be ranked.

    Attributes:
        frames: Emulator frames until which the run is trained; of the last rung those of `stop`.
        stop: `stop.env_frames` of the file.
        is_pruned: The run's setting was not among the best at this rung.
    """

    frames: int
    stop: int
    is_pruned: bool

    @property
    def is_last(self) -> bool:
        """Whether the run ends there, unranked."""
        return self.frames == self.stop


class _End(NamedTuple):
    """How an experiment ends.

    Attributes:
        stop: Its stop conditions.
        is_evaluated: Whether an evaluation follows.
    """

    stop: Stop
    is_evaluated: bool


def _end_of(file: Path) -> _End:
    """Return how the experiment of a file ends.

    Raises:
        SeedbedError: CONFIG, the file is wrong or missing.
    """
    return _end_at(file, version_of(file))


# A set of 1,000 runs has two files a run, and each takes some 10 ms to parse.
@lru_cache(maxsize=4096)
def _end_at(file: Path, _version: tuple[int, ...]) -> _End:
    experiment = load_experiment(file)
    return _End(experiment.stop, experiment.evaluation.at_end)


@dataclass(frozen=True)
class Member:
    """One run of a set, as its folder has it.

    Attributes:
        file: File of the experiment.
        values: Values of the axes by key; empty where the folder does not name them.
        rung: Rung of the run; None without halving.
    """

    file: Path
    values: Mapping[str, Any]
    rung: Rung | None = None

    @cached_property
    def name(self) -> str:
        """Name of the run."""
        return self.file.stem

    @cached_property
    def experiment(self) -> Experiment:
        """Settings of the file, with the stop of the rung.

        Raises:
            SeedbedError: CONFIG, the file is wrong.
        """
        experiment = load_experiment(self.file)
        if self.rung is None:
            return experiment
        return with_value(experiment, "stop.env_frames", self.rung.frames)

    @cached_property
    def run(self) -> Path:
        """Run directory."""
        return self.file.parent / "runs" / self.name

    @property
    def log(self) -> Path:
        """File of what the run writes to stderr."""
        return self.run.with_name(f"{self.name}.log")

    @property
    def has_begun(self) -> bool:
        """Whether a process has trained the run, so that it has a status."""
        return any(self.statuses())

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run resumes; it is not known of checkpoints outside of its directory."""
        folders = learner_directories(self.run) or [self.run]
        own = any(next(one.glob("checkpoints/*.safetensors"), None) for one in folders)
        return own or (self.has_begun and bool(self.experiment.learner.checkpoint.directory))

    @property
    def is_finished(self) -> bool:
        """Whether the run has met its stop condition or its rung, and has its last evaluation."""
        return bool(self.summary()) and self._has_met(self._end)

    def has_met(self, experiment: Experiment) -> bool:
        """Return whether the run has met a stop condition, and has its last evaluation."""
        return self._has_met(_End(experiment.stop, experiment.evaluation.at_end))

    @property
    def _end(self) -> _End:
        end = _end_of(self.file)
        if self.rung is None:
            return end
        return end._replace(stop=end.stop.model_copy(update={"env_frames": self.rung.frames}))

    def _has_met(self, end: _End) -> bool:
        summary = self.summary()
        if not self._has_ended(summary, end.stop):
            return False
        if not end.is_evaluated:
            return True
        evaluation = summary.get("evaluation") or {}
        # The evaluation of several learners is of their average or their best.
        several = bool(evaluation) and "learners" in summary
        return several or evaluation.get("updates", -1) == summary.get("updates")

    @property
    def lacks_evaluation(self) -> str:
        """The stop condition that the run has met, where its last evaluation is missing; or ""."""
        summary = self.summary()
        if not summary or self.is_finished or not self._has_ended(summary, self._end.stop):
            return ""
        return str(summary.get("stop_reason") or "")

    def _has_ended(self, summary: Mapping[str, Any], stop: Stop) -> bool:
        """Return whether a run with such a summary has met a stop condition."""
        if not summary:
            return False
        try:
            stored = _end_of(self.run / "experiment.yaml")
        except SeedbedError:  # the run itself names what is wrong with it
            return False
        if self.rung is not None and summary["env_frames"] < self.rung.frames:
            return False
        # One that a person has trained beyond the stop of the set has met it.
        is_behind = 0 < stop.env_frames <= summary.get("env_frames", 0)
        return self.rung is not None or stored.stop == stop or is_behind

    @property
    def goes_to_end(self) -> bool:
        """Whether the run trains to its stop condition, and not only to a rung before."""
        return self.rung is None or self.rung.is_last

    @property
    def is_pruned(self) -> bool:
        """Whether others were better at the run's rung."""
        return self.rung is not None and self.rung.is_pruned

    def summary(self) -> dict[str, Any]:
        """Return summary.json of the run; {} of a run that has not ended."""
        return read_object(self.run / "summary.json")

    def status(self) -> dict[str, Any]:
        """Return status.json of the run; {} of a run that has not begun."""
        return read_object(self.run / "status.json")

    def statuses(self) -> list[dict[str, Any]]:
        """Return status.json of each learner; {} of one that has not begun."""
        paths = learner_directories(self.run) or [self.run]
        return [read_object(path / "status.json") for path in paths]

    @property
    def frames(self) -> int:
        """Emulator frames of the run so far, of all its learners together."""
        return int(self.totals().frames)

    def totals(self) -> Totals:
        """Return what the run has taken so far, of all its learners together."""
        return totals_of(self.run)

    def last_evaluation(self) -> Mapping[str, Any] | None:
        """Return the newest evaluation, with numbers or their texts; None before the first."""
        if learner_directories(self.run):
            return self.summary().get("evaluation")
        rows = read_evaluations(self.run)
        return rows[-1] if rows else None


class Written(NamedTuple):
    """What a command has changed in a folder.

    Attributes:
        added: Names of the runs that are new.
        changed: Names of those whose experiments have changed, such as a later stop.
        left: Names of those that the folder has and the command does not name.
    """

    added: Sequence[str]
    changed: Sequence[str]
    left: Sequence[str]


def is_set(path: Path) -> bool:
    """Return whether a folder is that of a set."""
    return (path / _OWN / "runs.json").is_file()


def is_folder_of_runs(path: Path) -> bool:
    """Return whether a path is the folder of a set, or of experiments alone."""
    return path.is_dir() and (is_set(path) or (run_of(path) is None and any(path.glob("*.yaml"))))


def lock_file(path: Path) -> Path:
    """Return the file that the process which drives a set locks."""
    own = path / _OWN
    own.mkdir(parents=True, exist_ok=True)
    return own / "lock"


def read_members(path: Path) -> list[Member]:
    """Return the runs of a set in the order in which they were added.

    Of a folder with experiments alone, the first seed of every one is first.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder has no experiments; CONFIG, one is wrong, or two
            have the same name.
    """
    if is_set(path):
        return [Member(path / f"{run['name']}.yaml", run["values"]) for run in _index(path)["runs"]]
    files = sorted(path.glob("*.yaml"))
    if not files:
        raise RunDirectoryError(
            f"{path} has no experiments (NAME.yaml): `seedbed sweep EXPERIMENT.yaml --seeds 3 "
            f"--out {path}` writes them"
        )
    members = [Member(file, {}) for file in files]
    for member in members:
        if member.experiment.name != member.name:
            raise ConfigError(
                f"{member.file} has the name {member.experiment.name}: a file of a set is called "
                "NAME.yaml, so that no two runs share a folder"
            )
    return sorted(members, key=lambda one: (one.experiment.seed, one.name))


def sweep_file(path: Path) -> Path:
    """Return the file of what varies in a set."""
    return path / _OWN / "sweep.yaml"


def with_bound_of(path: Path, wanted: ResolvedSet) -> ResolvedSet:
    """Return a set with the bound and the rungs of its folder, where the set itself names none.

    Raises:
        SeedbedError: CONFIG, the folder's sweep is damaged.
    """
    unnamed = {"budget", "halving"} - wanted.sweep.model_fields_set
    if not unnamed or not sweep_file(path).exists():
        return wanted
    stored = read_sweep(sweep_file(path))
    update = {name: getattr(stored, name) for name in unnamed & stored.model_fields_set}
    return replace(wanted, sweep=wanted.sweep.model_copy(update=update))


def as_in_folder(path: Path, wanted: ResolvedSet) -> list[Run]:
    """Return the runs of a set with the names that they have, or would get, in a folder.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder's index is damaged, or the folder has something else
            in it; RESUME_REFUSED, the settings of
            every run are others than the folder's.
    """
    _check_ours(path)
    index = _index(path)
    if is_set(path):
        _changes(path, index, wanted)
    return [run for run, _ in _matched(path, index, wanted)]


def digests_of(path: Path) -> dict[str, str]:
    """Return the digests of the runs of a set, by name.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder cannot be read.
    """
    return {run["name"]: run["digest"] for run in _index(path)["runs"]}


def confirming(path: Path) -> set[str]:
    """Return the names of the runs that confirm what the others of a set have chosen."""
    if not is_set(path):
        return set()
    return {run["name"] for run in _index(path)["runs"] if run.get("confirms")}


def write_set(path: Path, wanted: ResolvedSet, confirms: bool = False) -> Written:
    """Write what a folder lacks of a set: a file for each run that is new or has changed.

    A run is found by its digest, whatever its name is. Nothing is removed.

    Args:
        path: The folder.
        wanted: The set, or the runs of it that are wanted.
        confirms: The new runs confirm what others have chosen.

    Raises:
        SeedbedError: RESUME_REFUSED, the settings of every run are others than the folder's;
            RUN_DIRECTORY, another process writes, or the folder has something else in it; CONFIG, a
            file cannot be written.
    """
    _check_ours(path)
    try:
        (path / _OWN).mkdir(parents=True, exist_ok=True)
        with _writing(path):
            return _write(path, wanted, confirms)
    except OSError as error:
        raise ConfigError(f"cannot write the set to {path}: {error}") from error


def _check_ours(path: Path) -> None:
    """Refuse a folder with something in it that is no set's."""
    if (path / _OWN).is_dir() or not path.exists():
        return
    if not path.is_dir():
        raise RunDirectoryError(f"{path} is a file: choose another folder for the set (--out)")
    if foreign := sorted({one.name for one in path.iterdir()} - {"lost+found"}):
        raise RunDirectoryError(
            f"{path} is no folder of a set and not empty (it has {foreign[0]!r}): choose another "
            "one (--out)"
        )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Hold the lock of the folder's own files, which no process keeps for long."""
    deadline = time.monotonic() + _WRITING_S
    while True:
        try:
            lock = Lock(path / _OWN / "writing.lock")
            break
        except LockHeld as holder:
            if time.monotonic() > deadline:
                raise RunDirectoryError(f"{path} is written by {holder}") from None
            time.sleep(0.05)
    try:
        yield
    finally:
        lock.release()


def _write(path: Path, wanted: ResolvedSet, confirms: bool) -> Written:
    index = _index(path)
    base = path / _OWN / "experiment.yaml"
    is_new = not base.exists()
    text = sweep_text(wanted.sweep)
    is_changed = is_new or sweep_file(path).read_text() != text
    changes = [] if is_new else _changes(path, index, wanted)
    known = {run["name"]: run for run in index["runs"]}
    added, changed, named = [], [], set()
    for run, is_known in _matched(path, index, wanted):
        named.add(run.name)
        if is_known:
            known[run.name]["values"] = run.values  # of an axis that was added, too
        if not is_known:
            added.append(run.name)
            _write_run(path, run)
            index["runs"].append(
                {
                    "name": run.name,
                    "digest": run.digest,
                    "values": run.values,
                    "seed": run.seed,
                    "confirms": confirms,
                }
            )
        elif (is_changed or changes) and _differs(path, run):
            changed.append(run.name)
            _write_run(path, run)
    index["axes"] = sorted({*index["axes"], *wanted.sweep.axes})
    index["name"], index["defaults"] = wanted.name, defaults_digest()
    atomic_write(base, dump_experiment(wanted.base, named_only=True))
    atomic_write(sweep_file(path), text)
    # The last one: what it names is there.
    atomic_write(path / _OWN / "runs.json", json.dumps(index, indent=1) + "\n")
    left = [run["name"] for run in index["runs"] if run["name"] not in named]
    return Written(added, changed, left)


def _matched(path: Path, index: Mapping[str, Any], wanted: ResolvedSet) -> list[tuple[Run, bool]]:
    """Return the runs with their names in a folder, and whether the folder has them already."""
    known = _known(path, index, wanted)
    taken = {run["name"] for run in index["runs"]}
    found = []
    for run in wanted.runs:
        name = known.get(run.digest)
        if name is None and (run.name in taken or (path / "runs" / run.name).exists()):
            name = run.name_with_digest
        found.append((renamed(run, name or run.name, wanted.name), run.digest in known))
        taken.add(found[-1][0].name)
    return found


def sweep_text(sweep: Sweep) -> str:
    """Return sweep.yaml: the experiment beside it has the settings of every run already."""
    left_out = {"experiment", "set"} | ({"axes"} if not sweep.axes else set())
    tree = sweep.model_dump(mode="json", exclude_unset=True, exclude=left_out)
    return dump_yaml({**tree, "experiment": "experiment.yaml"})


def _index(path: Path) -> dict[str, Any]:
    file = path / _OWN / "runs.json"
    if not file.exists():
        return {"name": "", "axes": [], "defaults": "", "runs": []}
    try:
        index = dict(json.loads(file.read_text()))
        assert all(run["name"] and run["digest"] for run in index["runs"])
    except (OSError, ValueError, TypeError, KeyError, AssertionError) as error:
        raise RunDirectoryError(
            f"{file} cannot be read ({error}): restore it, or begin a set in another folder"
        ) from error
    return index


def _changes(path: Path, index: Mapping[str, Any], wanted: ResolvedSet) -> list[Change]:
    """Return how what every run has differs from that of a folder.

    Raises:
        SeedbedError: RESUME_REFUSED, a run does not take one of them as it resumes.
    """
    base = path / _OWN / "experiment.yaml"
    before = read_stored(base.read_text(), str(base))
    return changes_of(before, wanted, index["axes"], str(path), "folder (--out)")


def changes_of(
    before: Experiment, wanted: ResolvedSet, axes: Collection[str], place: str, other: str
) -> list[Change]:
    """Return how what every run has differs from what it had.

    Args:
        before: Settings that every run had.
        wanted: The set.
        axes: Keys that varied.
        place: Where the runs are, in errors.
        other: What another set takes, with its option.

    Raises:
        SeedbedError: RESUME_REFUSED, a run does not take one of them as it resumes.
    """
    changes = compare(before, wanted.base)
    vary = {*axes, *wanted.sweep.axes}
    refused = [
        f"  {change.text}"
        for change in changes
        if change.key_class is not FREE
        and change.key != "seed"
        and not any(is_within(axis, change.key) for axis in vary)
    ]
    if refused:
        lines = [
            f"the runs of {place} have other settings, and a set with both would compare nothing:",
            *refused,
            f"set them back, take them as axes, or name another {other}",
        ]
        raise SeedbedError(ExitCode.RESUME_REFUSED, "\n".join(lines))
    return changes


def _known(path: Path, index: Mapping[str, Any], wanted: ResolvedSet) -> dict[str, str]:
    """Return the names of the folder's runs by the digests that they have today."""
    is_same = index["defaults"] == defaults_digest() and set(wanted.sweep.axes) <= set(
        index["axes"]
    )
    if is_same:
        return {run["digest"]: run["name"] for run in index["runs"]}
    axes = {*index["axes"], *wanted.sweep.axes}
    found = {}
    for run in index["runs"]:
        # A run that has begun records every setting, also those whose defaults have changed.
        file = path / "runs" / run["name"] / "experiment.yaml"
        file = file if file.exists() else path / f"{run['name']}.yaml"
        run["digest"] = digest(read_stored(file.read_text(), str(file)), axes)
        found[run["digest"]] = run["name"]
    return found


def _differs(path: Path, run: Run) -> bool:
    try:
        return load_experiment(path / f"{run.name}.yaml") != run.experiment
    except SeedbedError:
        return True


def _write_run(path: Path, run: Run) -> None:
    text = dump_experiment(run.experiment, named_only=True)
    atomic_write(path / f"{run.name}.yaml", f"# {describe(run.values)}\n{text}")
