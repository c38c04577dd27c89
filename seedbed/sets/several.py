"""The folder of a run of several remote learners, from the copies of what each has written."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbed.config import Experiment
from seedbed.launch.learners_view import run_summary
from seedbed.runs.layout import learner_directory
from seedbed.runtime.files import atomic_write, read_object
from seedbed.runtime.text import counted

# What the folder of all learners has as the first one has it.
_AS_THE_FIRST = ("experiment.yaml", "history.json")


def join_learners(run: Path, experiment: Experiment, learners: int, is_over: bool = False) -> None:
    """Write what a run of several learners has beside their folders, as `seedbed train` does.

    That is its experiment, its history and, once each learner has ended by a stop condition, its
    summary. A run that goes on has none.

    Args:
        run: Run directory of all learners.
        experiment: Its settings.
        learners: Their number.
        is_over: The run has ended, also for learners that have told nothing of it.

    Raises:
        OSError: A file cannot be written.
        KeyError: A learner has written what none writes.
    """
    folders = [learner_directory(run, rank) for rank in range(learners)]
    for name in _AS_THE_FIRST:
        found = next((file for one in folders if (file := one / name).exists()), None)
        if found is not None:
            _replace(run / name, found.read_bytes())
    statuses: list[Any] = [read_object(one / "status.json") or None for one in folders]
    summaries = [read_object(one / "summary.json") or None for one in folders]
    ended = [one for one in summaries if one is not None]
    file = run / "summary.json"
    # As on one machine, a cap on dollars ends the learners and not the run.
    if not ended or len(ended) < learners * (not is_over) or "dollars" in ended[0]["stop_reason"]:
        file.unlink(missing_ok=True)
        return
    evaluation = _evaluation(ended, experiment.gossip.evaluation == "best")
    summary = run_summary(statuses, summaries, evaluation, 0.0)
    _replace(file, (json.dumps(summary, indent=1) + "\n").encode())


def _evaluation(ended: Sequence[Mapping[str, Any]], is_best: bool) -> dict[str, Any] | None:
    """Return the last evaluation of a run, whose learners have each played their own; None without.

    Args:
        ended: Summaries of its learners.
        is_best: The best learner's counts, and not all episodes of all.
    """
    played = [one["evaluation"] for one in ended if one.get("evaluation")]
    if not played:
        return None
    taken = {
        "env_frames": sum(one["env_frames"] for one in ended),
        "updates": max(one["updates"] for one in ended),
        "training_seconds": max(one["seconds"] for one in ended),
    }
    first = max(played, key=lambda one: float(one["mean"])) if is_best else played[0]
    if is_best or len(played) == 1:
        return {**first, **taken}
    episodes = sum(one["episodes"] for one in played)
    normalised = [one.get("human_normalised") for one in played]

    def mean_of(numbers: Sequence[float]) -> float:
        pairs = zip(numbers, played, strict=True)
        return float(sum(number * one["episodes"] for number, one in pairs) / episodes)

    return {
        **taken,
        "episodes": episodes,
        # Beside a run of one machine, which plays their average, `compare` tells the difference.
        "policy": f"{first['policy']}, each of {counted(len(played), 'learner')}",
        "mean": mean_of([one["mean"] for one in played]),
        "human_normalised": None if None in normalised else mean_of(normalised),
        "checkpoint": first["checkpoint"],
    }


def _replace(file: Path, content: bytes) -> None:
    if not file.exists() or file.read_bytes() != content:
        atomic_write(file, content)
