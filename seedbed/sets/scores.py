"""What a run is worth by its evaluations: its final, its best checkpoint, its area.

All runs are judged at one time, the horizon: runs of other lengths say nothing of each other.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seedbed.runtime.text import counted
from seedbed.sets.records import Record

# By which the frames of final evaluations may differ from the horizon.
_NEAR = 0.02


class Horizon(NamedTuple):
    """The time at which runs are judged.

    Attributes:
        env_frames: Emulator frames of the finals; None where there are none.
        begin: Emulator frames from which areas count, the latest first evaluation of a run; None
            where there are none.
        refusals: Why there are no finals, or no areas.
    """

    env_frames: float | None
    begin: float | None
    refusals: Sequence[str]


def common_horizon(records: Sequence[Record], at: float | None) -> Horizon:
    """Return the horizon that all finished runs share.

    Args:
        records: The runs.
        at: Emulator frames of the horizon; None takes the last evaluation that all have.
    """
    finished = [record for record in records if record.state == "finished"]
    horizon, refusal = _horizon(finished, at)
    if horizon is None:
        return Horizon(None, None, [refusal])
    begin = max(record.evaluations[0].env_frames for record in finished)
    if begin < (1 - _NEAR) * horizon:
        return Horizon(horizon, begin, [])
    late = next(r.name for r in finished if r.evaluations[0].env_frames == begin)
    text = (
        f"{late} has no evaluation before {horizon:,.0f} frames: there are no areas under the "
        "curve (evaluation.every_frames)"
    )
    return Horizon(horizon, None, [text])


def _horizon(finished: Sequence[Record], at: float | None) -> tuple[float | None, str]:
    if not finished:
        return None, "no run is finished: there are no finals"
    early = [r for r in finished if r.stop_reason.startswith("stop.mean_return")]
    if at is None and early:
        return None, (
            f"{len(early)} of {counted(len(finished), 'finished run')} ended at a score: finals of "
            "runs of different lengths say nothing, so there are none (--at FRAMES takes "
            "evaluations of that time)"
        )
    last = [r.evaluations[-1].env_frames if r.evaluations else math.nan for r in finished]
    if at is None and any(map(math.isnan, last)):
        missing = finished[next(i for i, one in enumerate(last) if math.isnan(one))]
        return None, f"{missing.name} was never evaluated: there are no finals"
    stops = {_end(record) for record in finished}
    # Their ends are as many frames behind one stop as were under way.
    stop = stops.pop() if len(stops) == 1 else None
    horizon = at if at is not None else stop or min(last)
    for record in finished:
        if final(record, horizon) is None:
            times = [one.env_frames for one in record.evaluations]
            own = f"nearest: {min(times, key=lambda t: abs(t - horizon)):,.0f}" if times else "none"
            return None, (
                f"{record.name} has no evaluation at {horizon:,.0f} frames ({own}): there are no "
                "finals (--at FRAMES takes another time)"
            )
    return horizon, ""


def _end(record: Record) -> float | None:
    """Return the emulator frames at which a run was to end, and was evaluated; None elsewhere."""
    stop = float(record.settings["stop.env_frames"])
    by_frames = record.stop_reason.startswith("stop.env_frames")
    is_evaluated = bool(record.evaluations) and record.evaluations[-1].env_frames >= stop
    return stop if by_frames and is_evaluated else None


def final(record: Record, horizon: float) -> float | None:
    """Return the mean return of the evaluation nearest to a horizon; None without one near it.

    The last evaluation of a run that has ended there is near it, whatever it has trained beyond.
    """
    if _end(record) == horizon:
        return record.evaluations[-1].mean
    near = [
        (abs(one.env_frames - horizon), one.mean)
        for one in record.evaluations
        if abs(one.env_frames - horizon) <= _NEAR * horizon
    ]
    return min(near)[1] if near else None


def best_checkpoint(record: Record, horizon: float) -> float:
    """Return the highest mean return of an evaluation until a horizon of `common_horizon`."""
    until = math.inf if _end(record) == horizon else (1 + _NEAR) * horizon
    return max(one.mean for one in record.evaluations if one.env_frames <= until)


def area(record: Record, begin: float, horizon: float) -> float:
    """Return the mean of the curve of evaluations, linear between them, from `begin` to `horizon`.

    It is the area under the curve, divided by its length: a return.
    """
    frames = np.array([one.env_frames for one in record.evaluations])
    means = np.array([one.mean for one in record.evaluations])
    inner = frames[(frames > begin) & (frames < horizon)]
    x = np.array([begin, *inner, horizon])
    return float(np.trapezoid(np.interp(x, frames, means), x) / (horizon - begin))
