"""What a run is worth by its evaluations: its final, its best checkpoint, its area.

All runs are judged at one time, the horizon: runs of other lengths say nothing of each other.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedbed.runtime.text import counted
from seedbed.sets.records import Evaluation, Record

# By which the frames of final evaluations may differ from the horizon.
_NEAR = 0.02


class Horizon(NamedTuple):
    """The time at which runs are judged.

    Attributes:
        env_frames: Emulator frames of the finals.
        begin: Emulator frames from which areas count, the latest first evaluation of a run; None
            where there are none.
    """

    env_frames: float
    begin: float | None


def common_horizon(records: Sequence[Record], at: float | None) -> tuple[Horizon | None, list[str]]:
    """Return the horizon that all finished runs share, and why there are no finals or no areas.

    Args:
        records: The runs.
        at: Emulator frames of the horizon; None takes the last evaluation that all have.
    """
    finished = [record for record in records if record.state == "finished"]
    if refusal := _refusal(finished, at):
        return None, [refusal]
    env_frames = at if at is not None else min(map(_last, finished))
    horizon = Horizon(env_frames, None)
    for record in finished:
        if final(record, horizon) is None:
            times = [one.env_frames for one in record.evaluations]
            nearest = min(times, key=lambda t: abs(t - env_frames)) if times else None
            own = f"nearest: {nearest:,.0f}" if nearest is not None else "none"
            return None, [
                f"{record.name} has no evaluation at {env_frames:,.0f} frames ({own}): there are "
                "no finals (--at FRAMES takes another time)"
            ]
    begin = max(record.evaluations[0].env_frames for record in finished)
    if begin < (1 - _NEAR) * env_frames:
        return horizon._replace(begin=begin), []
    late = next(r.name for r in finished if r.evaluations[0].env_frames == begin)
    return horizon, [
        f"{late} has no evaluation before {env_frames:,.0f} frames: there are no areas under the "
        "curve (evaluation.every_frames)"
    ]


def _refusal(finished: Sequence[Record], at: float | None) -> str:
    """Return why runs have no finals, whatever their evaluations; empty where they may."""
    if not finished:
        return "no run is finished: there are no finals"
    if at is not None:
        return ""
    if early := [r for r in finished if r.stop_reason.startswith("stop.mean_return")]:
        return (
            f"{len(early)} of {counted(len(finished), 'finished run')} ended at a score: finals of "
            "runs of different lengths say nothing, so there are none (--at FRAMES takes "
            "evaluations of that time)"
        )
    if missing := [record.name for record in finished if not record.evaluations]:
        return f"{missing[0]} was never evaluated: there are no finals"
    return ""


def _last(record: Record) -> float:
    """Return the emulator frames of the last evaluation: those of the stop, where it ended at it.

    Runs end as many frames behind one stop as were under way.
    """
    stop = float(record.settings["stop.env_frames"])
    last = record.evaluations[-1]
    return stop if _at_stop(record, stop) is last else last.env_frames


def _at_stop(record: Record, stop: float) -> Evaluation | None:
    """Return the evaluation with which a run has ended at a stop; None where it has not.

    The stop may be one of before, beyond which the run was trained since.
    """
    found = [one for one in record.evaluations if one.env_frames >= stop]
    if not found or stop not in record.stops:
        return None
    is_former = stop != record.settings["stop.env_frames"]
    if is_former:
        return found[0]
    return found[-1] if record.stop_reason.startswith("stop.env_frames") else None


def due_frames(record: Record, evaluation: Evaluation) -> float:
    """Return the frames at which an evaluation of a run was due.

    It is made after the update that reaches them, in one run earlier than in the other: a
    difference that says nothing of what was learned.
    """
    for stop in record.stops | {float(record.settings["stop.env_frames"])}:
        if evaluation is _at_stop(record, stop):
            return stop
    every, frames = float(record.settings["evaluation.every_frames"]), evaluation.env_frames
    return frames // every * every if 0 < every <= frames else frames


def final(record: Record, horizon: Horizon) -> float | None:
    """Return the mean return of the evaluation nearest to a horizon; None without one near it.

    The evaluation of a run that has ended there is near it, whatever it has trained beyond.
    """
    if (at_stop := _at_stop(record, horizon.env_frames)) is not None:
        return at_stop.mean
    near = [
        (distance, one.mean)
        for one in record.evaluations
        if (distance := abs(one.env_frames - horizon.env_frames)) <= _NEAR * horizon.env_frames
    ]
    return min(near)[1] if near else None


def best_checkpoint(record: Record, horizon: Horizon) -> float:
    """Return the highest mean return of an evaluation until a horizon of `common_horizon`."""
    at_stop = _at_stop(record, horizon.env_frames)
    until = max((1 + _NEAR) * horizon.env_frames, at_stop.env_frames if at_stop else 0.0)
    return max(one.mean for one in record.evaluations if one.env_frames <= until)


def area(record: Record, begin: float, end: float) -> float:
    """Return the mean of the curve of evaluations, linear between them, from `begin` to `end`.

    It is the area under the curve, divided by its length: a return.
    """
    frames = np.array([one.env_frames for one in record.evaluations])
    means = np.array([one.mean for one in record.evaluations])
    inner = frames[(frames > begin) & (frames < end)]
    x = np.array([begin, *inner, end])
    return float(np.trapezoid(np.interp(x, frames, means), x) / (end - begin))
