"""The folder of a suite: an experiment file for each game and seed, and the run of each.

DIR/
  NAME.yaml        an experiment, as `seedbed train` takes it
  runs/NAME/       its run directory
  runs/NAME.log    what `seedbed train` has written to stderr
  suite.lock       locked while `seedbed suite run` works
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seedbed.config import Experiment, load_experiment
from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.layout import learner_directories
from seedbed.runtime.exit_codes import ConfigError, RunDirectoryError, SeedbedError


@dataclass(frozen=True)
class Member:
    """One experiment of a suite, and its run.

    Attributes:
        file: The experiment's file.
        experiment: What the file says.
    """

    file: Path
    experiment: Experiment

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name

    @property
    def run(self) -> Path:
        """Run directory."""
        return self.file.parent / "runs" / self.name

    @property
    def log(self) -> Path:
        """File of what the run writes to stderr."""
        return self.run.with_name(f"{self.name}.log")

    @property
    def is_finished(self) -> bool:
        """Whether the run has met a stop condition of the file, and has its last evaluation."""
        summary = self.summary()
        if not summary:
            return False
        try:
            stored = load_experiment(self.run / "experiment.yaml")
        except SeedbedError:  # the run itself says what is wrong with it
            return False
        if stored.stop != self.experiment.stop:
            return False
        if not self.experiment.evaluation.at_end:
            return True
        evaluation = summary.get("evaluation") or {}
        # The evaluation of several learners is of their average or their best.
        several = bool(evaluation) and "learners" in summary
        return several or evaluation.get("updates") == summary["updates"]

    def summary(self) -> dict[str, Any]:
        """Return summary.json of the run; {} of a run that has not ended."""
        try:
            return dict(json.loads((self.run / "summary.json").read_text()))
        except (OSError, ValueError, TypeError):
            return {}

    def last_evaluation(self) -> Mapping[str, Any] | None:
        """Return the newest evaluation, with numbers or their texts; None before the first."""
        if learner_directories(self.run):
            return self.summary().get("evaluation")
        rows = read_evaluations(self.run)
        return rows[-1] if rows else None


def read_suite(path: Path) -> list[Member]:
    """Return the experiments of a suite, the first seed of every game first.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder has no experiments; CONFIG, one is wrong, or two
            have the same name.
    """
    files = sorted(path.glob("*.yaml"))
    if not files:
        raise RunDirectoryError(
            f"{path} has no experiments (NAME.yaml): `seedbed suite prepare atari57 --experiment "
            f"EXPERIMENT.yaml --out {path}` writes them"
        )
    by_name: dict[str, Member] = {}
    for file in files:
        member = Member(file, load_experiment(file))
        if (other := by_name.setdefault(member.name, member)) is not member:
            raise ConfigError(
                f"{other.file} and {file} have the same name, {member.name}, and would share a run "
                "directory: change one"
            )
    return sorted(by_name.values(), key=lambda one: (one.experiment.seed, one.name))
