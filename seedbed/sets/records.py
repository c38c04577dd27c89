"""A run as it is compared: what it was trained with, how it ended, what its evaluations found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.config.keys import keys
from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.history import read_history
from seedbed.runs.resume import read_stored
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.files import read_object
from seedbed.sets.folder import Rung
from seedbed.sets.identity import plain
from seedbed.sets.states import State, member_of, run_state


class Evaluation(NamedTuple):
    """One evaluation of a run.

    Attributes:
        env_frames: Emulator frames after which it was made.
        seconds: Seconds of training until then; None where they are not known.
        mean: Mean return of the episodes.
        human_normalised: The mean from random play (0) to a human (1); None where there are no
            scores of them.
    """

    env_frames: float
    seconds: float | None
    mean: float
    human_normalised: float | None


@dataclass(frozen=True)
class Record:
    """One run.

    Attributes:
        path: Run directory.
        settings: Every setting by key, as plain data.
        setup: What may change a score besides settings: commit, version, machine, Python, and how
            it was evaluated.
        state: As `run_state` has it.
        stops: `stop.env_frames` of this and of earlier starts.
        stop_reason: Stop condition that has ended the run; empty without one.
        evaluations: By frames; those whose mean is a finite number.
        env_frames: Emulator frames of the training so far.
        seconds: Seconds of training so far.
        dollars: Cost so far, in US dollars.
        confirms: Whether the run confirms what others of its set have chosen.
    """

    path: Path
    settings: Mapping[str, Any]
    setup: Mapping[str, str]
    state: State
    stops: frozenset[float]
    stop_reason: str
    evaluations: tuple[Evaluation, ...]
    env_frames: float
    seconds: float
    dollars: float
    confirms: bool

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.path.name

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.settings["seed"])

    def human_normalised(self) -> "Record | None":
        """Return the run with human-normalised evaluations; None where one has no such score."""
        found = []
        for one in self.evaluations:
            if one.human_normalised is None:
                return None
            found.append(one._replace(mean=one.human_normalised))
        return replace(self, evaluations=tuple(found))


def read_record(
    path: Path, confirms: bool = False, code: str | None = None, rung: Rung | None = None
) -> Record:
    """Read a run.

    Args:
        path: Run directory.
        confirms: Whether the run confirms what others of its set have chosen.
        code: Which of the codes of its set has trained it; None where there was one.
        rung: Rung of the run; None without halving.

    Raises:
        SeedbedError: RUN_DIRECTORY, there is no experiment, or none that can be read.
    """
    file = path / "experiment.yaml"
    try:
        experiment = read_stored(file.read_text(), str(file))
        earlier = [read_stored(one.read_text(), str(one)) for one in path.glob("experiment.*.yaml")]
    except OSError as error:
        raise RunDirectoryError(f"{path} is no run: {file} cannot be read: {error}") from error
    settings = {key.path: plain(attrgetter(key.path)(experiment)) for key in keys()}
    summary, status = read_object(path / "summary.json"), read_object(path / "status.json")
    counters = summary or dict(status.get("counters") or {})
    state = run_state(member_of(path, rung), summary, status)
    reason = str(summary.get("stop_reason") or "") if state == "finished" else ""
    if state == "finished" and experiment.evaluation.at_end and not summary.get("evaluation"):
        state = "unfinished"
    rows = _rows(path, summary, settings["gossip.replicas"] > 1)
    evaluations = tuple(map(_evaluation, rows))
    if evaluations and not math.isfinite(evaluations[-1].mean) and state == "finished":
        state, reason = "diverged", ""
    evaluations = tuple(one for one in evaluations if math.isfinite(one.mean))
    frames, seconds, dollars = (
        float(counters.get(name) or 0.0) for name in ("env_frames", "seconds", "dollars")
    )
    if rung is not None:
        settings["stop.env_frames"] = rung.stop  # a rung is no setting
    stops = frozenset(float(one.stop.env_frames) for one in [experiment, *earlier])
    setup = _setup(path) | ({"code": code} if code is not None else {})
    if rows:
        protocols = dict.fromkeys(f"{row['episodes']} episodes, {row['policy']}" for row in rows)
        setup["evaluated by"] = " and ".join(protocols)
    return Record(
        path, settings, setup, state, stops, reason, evaluations, frames, seconds, dollars, confirms
    )


def _setup(path: Path) -> dict[str, str]:
    starts = read_history(path)["starts"]
    if not starts:
        return {}
    newest = starts[-1]
    commit = newest["commit"][:10] + ("" if newest["clean"] in (True, None) else ", changed")
    return {
        "version": newest["version"],
        "commit": commit,
        "python": newest["python"],
        "machine": newest["machine"].partition(", ")[2],  # without the host's name
    }


def _rows(path: Path, summary: Mapping[str, Any], is_several: bool) -> Sequence[Mapping[str, Any]]:
    """Return the evaluations of a run; of several learners the last one, of their average."""
    if not is_several:
        return read_evaluations(path)
    last = summary.get("evaluation")
    return [last] if last else []


def _evaluation(row: Mapping[str, Any]) -> Evaluation:
    seconds, human = row.get("training_seconds"), row.get("human_normalised")
    return Evaluation(
        float(row["env_frames"]),
        float(seconds) if seconds else None,
        float(row["mean"]),
        float(human) if human not in ("", None) else None,
    )
