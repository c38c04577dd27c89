"""Whether a run is at its end, from its summary: such a run is neither started nor written to."""

from collections.abc import Mapping
from typing import Any

from seedbed.config import Experiment

_COUNTED = ("env_frames", "updates", "seconds", "dollars")


def end_of(summary: Mapping[str, Any] | None, experiment: Experiment) -> str | None:
    """Return the stop condition by which a run has ended for good; None where it would resume.

    Args:
        summary: The run's summary.json; None where there is none.
        experiment: Settings of this start, whose stop conditions may have been raised.
    """
    if summary is None:
        return None
    try:
        key = _met(summary, experiment)
        if key is None or _wants_evaluation(summary, experiment, key):
            return None
        return str(summary["stop_reason"])
    except (KeyError, TypeError, AttributeError):  # of another version
        return None


def _met(summary: Mapping[str, Any], experiment: Experiment) -> str | None:
    stop = experiment.stop
    for name in _COUNTED:
        limit = getattr(stop, name)
        if limit and summary[name] >= limit:
            return name
    if stop.mean_return is not None and str(summary["stop_reason"]).startswith("stop.mean_return"):
        reached = summary["mean_return"]
        enough = summary["mean_return_episodes"] >= stop.mean_return_episodes
        if reached is not None and enough and reached >= stop.mean_return:
            return "mean_return"
    return None


def _wants_evaluation(summary: Mapping[str, Any], experiment: Experiment, key: str) -> bool:
    """Return whether the last evaluation was interrupted, so that the same command makes it."""
    if key == "dollars" or not experiment.evaluation.at_end:
        return False
    evaluation = summary["evaluation"]
    if evaluation is None or "learners" in summary:
        return evaluation is None
    return bool(evaluation["updates"] != summary["updates"])
