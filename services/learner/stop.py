"""Stop conditions. The first one that is met ends the run."""

from __future__ import annotations

from services.common.config.schema import Stop
from services.learner.telemetry import Counters, Telemetry


def stop_reason(stop: Stop, counters: Counters, telemetry: Telemetry) -> str | None:
    """Which condition is met, with both numbers, or None."""
    limits = (
        ("env_frames", stop.env_frames, counters.env_frames),
        ("updates", stop.updates, counters.updates),
        ("seconds", stop.seconds, counters.seconds),
        ("dollars", stop.dollars, counters.dollars),
    )
    for name, limit, value in limits:
        if limit and value >= limit:
            return f"stop.{name}: {value:.10g} of {limit:.10g}"
    if stop.mean_return is not None:
        mean = telemetry.mean_return(stop.mean_return_episodes)
        if mean is not None and mean >= stop.mean_return:
            return (
                f"stop.mean_return: {mean:.4g} over {stop.mean_return_episodes} episodes, "
                f"wanted {stop.mean_return:g}"
            )
    return None
