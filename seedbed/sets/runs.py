"""Runs in a notebook: their settings and scores as arrays or as a pandas frame, and compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runs.found import runs_below
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.text import counted
from seedbed.sets.code import code_names
from seedbed.sets.comparison import compare
from seedbed.sets.folder import confirming, is_set, read_members
from seedbed.sets.groups import differing_settings, keys_named
from seedbed.sets.halving import members_at_rungs
from seedbed.sets.records import Record, read_record


class Runs:
    """Runs, each with its settings and how it has ended.

    Attributes:
        records: One of each run.
        left_out: Why further runs could not be read, a line each.
        to_begin: How many further runs of the sets have not begun.
    """

    def __init__(
        self, records: Sequence[Record], left_out: Sequence[str] = (), to_begin: int = 0
    ) -> None:
        self.records, self.left_out = tuple(records), tuple(left_out)
        self.to_begin = to_begin

    def __len__(self) -> int:
        return len(self.records)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return arrays [runs] by column: the settings that differ, by key, and the results.

        Numbers that were not measured are NaN; lists, mappings and values of several types are
        objects.
        """
        records = self.records
        last = [one.evaluations[-1].mean if one.evaluations else np.nan for one in records]
        columns: dict[str, list[Any]] = {
            "run": [one.name for one in records],
            "seed": [one.seed for one in records],
            **{key: [one.settings[key] for one in records] for key in differing_settings(records)},
            "state": [one.state for one in records],
            "env_frames": [one.env_frames for one in records],
            "seconds": [one.seconds for one in records],
            "dollars": [one.dollars for one in records],
            "evaluation_mean": last,
        }
        return {name: _array(values) for name, values in columns.items()}

    def frame(self) -> Any:
        """Return the columns as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            text = "a frame needs pandas (pip install pandas); columns() has the same as arrays"
            raise ImportError(text) from error
        return pandas.DataFrame(self.columns())

    def compare(
        self, by: str | Sequence[str] = (), score: float | None = None, at: float | None = None
    ) -> dict[str, Any]:
        """Return what `seedbed compare --json` prints.

        Args:
            by: Keys of the groups, or their last parts; empty takes all that differ.
            score: Mean return to which frames are counted.
            at: Emulator frames of the final evaluations.

        Raises:
            SeedbedError: USAGE, no two runs differ in a key of `by`.
            ImportError: SciPy is not installed.
        """
        words = [by] if isinstance(by, str) else by
        result = compare(self.records, keys_named(words), score, at)
        result["notes"] += self.left_out
        if self.to_begin:
            result["sentence"] += f" Not begun: {counted(self.to_begin, 'run')}."
        return result

    def best(self, by: str | Sequence[str] = ()) -> dict[str, Any]:
        """Return the group that `compare` ranks first: its values, its runs, its statistics.

        Raises:
            SeedbedError: As `compare`; USAGE, nothing can be compared yet.
            ImportError: SciPy is not installed.
        """
        result = self.compare(by)
        best: dict[str, Any] = result["groups"][0]
        if best[result["ranked_by"]] is None:
            why = "; ".join(result["refusals"]) or "no run has a result"
            raise SeedbedError(ExitCode.USAGE, f"no setting is the best: {why}")
        return best


def _array(values: list[Any]) -> NDArray[Any]:
    kinds = {type(value) for value in values}
    if (len(kinds) == 1 and not kinds & {list, dict}) or kinds == {int, float}:
        return np.array(values)
    found = np.empty(len(values), object)
    found[:] = values
    return found


def load_runs(*paths: str | Path) -> Runs:
    """Load the runs at and below folders, such as the folder of a set.

    Args:
        paths: Run directories, sets and folders of runs.

    Raises:
        SeedbedError: RUN_DIRECTORY, there is no run, or none that can be read.
    """
    to_begin: dict[Path, int] = {}
    for path in map(Path, paths):
        members = read_members(path) if is_set(path) else []
        to_begin[path.resolve()] = missing = sum(not member.has_begun for member in members)
        if members and missing == len(members):
            raise RunDirectoryError(
                f"no run of {path} has begun, of {len(members)}: `seedbed sweep {path}` begins them"
            )
    below = [run for path in paths for run in runs_below(Path(path))]
    found = list({run.resolve(): run for run in below}.values())  # one named twice is one
    sets = {run.parent.parent for run in found}
    claims = {path / "runs" / name for path in sets for name in confirming(path)}
    codes = {path / "runs" / name: code for path in sets for name, code in code_names(path).items()}
    rungs = {one.run: one.rung for path in sets if is_set(path) for one in members_at_rungs(path)}
    records: list[Record] = []
    left_out: list[str] = []
    for run in found:
        try:
            records.append(read_record(run, run in claims, codes.get(run), rungs.get(run)))
        except SeedbedError as error:
            if len(left_out) == len(found) - 1:
                raise
            left_out.append(f"left out: {str(error).splitlines()[0]}")
    return Runs(records, left_out, sum(to_begin.values()))
