"""How far a run is, by the statuses of its learners: what a row of a list shows."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from seedbed.telemetry.status import RunStatus

# Stop conditions of one counter each, in the order in which they are looked at.
COUNTED = ("env_frames", "updates", "seconds", "dollars")


class Standing(TypedDict):
    """Progress and score of a run; None where it is not known."""

    env_frames: int | None  # of all learners together
    goal: int | None  # `stop.env_frames`
    done: float | None  # share of the nearest stop condition
    mean_return: float | None
    evaluation_mean: float | None
    seconds: float | None
    seconds_left: float | None


UNKNOWN: Standing = {
    "env_frames": None, "goal": None, "done": None, "mean_return": None, "evaluation_mean": None,
    "seconds": None, "seconds_left": None,
}  # fmt: skip


def standing_of(
    statuses: "Sequence[RunStatus]", frames: int, evaluation: Mapping[str, Any]
) -> Standing:
    """Return how far a run is.

    Args:
        statuses: Of its learners; the first one is shown where they differ.
        frames: Emulator frames of all learners together.
        evaluation: The last evaluation: of the average, where there are several learners.
    """
    status = statuses[0]
    stop, counters = status["stop"], status["counters"] | {"env_frames": frames}
    limits = ((counters[name], stop.get(name)) for name in COUNTED)
    left = None if status["stop_reason"] is not None else status["eta"]
    return {
        "env_frames": frames,
        "goal": stop["env_frames"] or None,
        "done": max((min(1.0, done / limit) for done, limit in limits if limit), default=None),
        "mean_return": _finite(status["numbers"].get("mean_return")),
        "evaluation_mean": _finite(evaluation.get("mean")),
        "seconds": status["counters"]["seconds"],
        "seconds_left": left["seconds"] if left else None,
    }


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has; None for another one."""
    return value if value is not None and math.isfinite(value) else None
