"""Estimate of when the run ends."""

from typing import NamedTuple

from seedbed.config.run import Stop
from seedbed.telemetry.counters import Counters


class TimeLeft(NamedTuple):
    """Seconds to go, and the stop condition that will be met first.

    `is_limit`: a mean return, which is not foreseen, may end the run sooner.
    """

    seconds: float
    condition: str
    is_limit: bool = False


def time_left(
    stop: Stop,
    counters: Counters,
    env_fps: float | None,
    updates_per_s: float | None,
    dollars_per_hour: float,
) -> TimeLeft | None:
    """Return the nearest stop condition at the present rates; None if none is in sight."""
    ways = (
        ("env_frames", stop.env_frames, counters.env_frames, env_fps),
        ("updates", stop.updates, counters.updates, updates_per_s),
        ("seconds", stop.seconds, counters.seconds, 1.0),
        ("dollars", stop.dollars, counters.dollars, dollars_per_hour / 3600),
    )
    found = [
        TimeLeft(max(0.0, target - done) / rate, name, stop.mean_return is not None)
        for name, target, done, rate in ways
        if target and rate
    ]
    return min(found, default=None)
