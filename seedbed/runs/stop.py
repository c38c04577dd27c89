"""Stop conditions, and whether a run has met one: such a run is neither started nor written to."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from seedbed.config import Experiment
from seedbed.config.run import Stop
from seedbed.numbers import InvalidNumbers, check_number
from seedbed.runs.standing import COUNTED
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import counted
from seedbed.telemetry.counters import Counters


class MetCondition(NamedTuple):
    """A stop condition that is met."""

    key: str  # in `stop`
    text: str  # the condition with both numbers


def met_condition(
    stop: Stop, counters: Counters, mean_return: Callable[[int], float | None]
) -> MetCondition | None:
    """Return the first stop condition that is met, or None.

    Args:
        stop: the conditions of the experiment.
        counters: the counters of all learners together.
        mean_return: mean return of the last N episodes; None until there are N.

    Raises:
        SeedbedError: INTERNAL, a counter with a limit is not a finite number, so that it would
            never reach the limit.
    """
    for name in COUNTED:
        limit, value = getattr(stop, name), getattr(counters, name)
        if not limit:
            continue
        try:
            check_number(f"stop.{name}", value)
        except InvalidNumbers as error:
            raise SeedbedError(ExitCode.INTERNAL, f"{error}, which no limit would end") from error
        if value >= limit:
            return MetCondition(name, f"stop.{name}: {round(value, 4):.10g} of {limit:.10g}")
    if stop.mean_return is not None:
        mean = mean_return(stop.mean_return_episodes)
        if mean is not None and mean >= stop.mean_return:
            return MetCondition(
                "mean_return",
                f"stop.mean_return: {mean:.4g} over "
                f"{counted(stop.mean_return_episodes, 'episode')}, wanted {stop.mean_return:g}",
            )
    return None


def end_of(summary: Mapping[str, Any] | None, experiment: Experiment) -> MetCondition | None:
    """Return the stop condition by which a run has ended for good; None where it would resume.

    Args:
        summary: The run's summary.json; None where there is none.
        experiment: Settings of this start, whose stop conditions may have been raised.
    """
    if summary is None:
        return None

    def mean_return(episodes: int) -> float | None:
        # That of other episodes than the summary has is the learner's to find.
        return summary["mean_return"] if summary["mean_return_episodes"] == episodes else None

    try:
        counters = Counters(**{name: summary[name] for name in COUNTED})
        met = met_condition(experiment.stop, counters, mean_return)
        if met is None or _wants_evaluation(summary, experiment, met.key):
            return None
    except (KeyError, TypeError, AttributeError):  # of another version
        return None
    return met


def _wants_evaluation(summary: Mapping[str, Any], experiment: Experiment, key: str) -> bool:
    """Return whether the last evaluation was interrupted, so that the same command makes it."""
    if key == "dollars" or not experiment.evaluation.at_end or not summary["updates"]:
        return False
    evaluation = summary["evaluation"]
    if evaluation is None or "learners" in summary:
        return evaluation is None
    return bool(evaluation["updates"] != summary["updates"])
