"""Stop conditions. The first one that is met ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from seedbed.config.run import Stop
from seedbed.telemetry import Counters


class Reached(NamedTuple):
    """A stop condition that is met."""

    condition: str  # the key in `stop`
    text: str  # the condition with both numbers


def stop_reached(
    stop: Stop, counters: Counters, mean_return: Callable[[int], float | None]
) -> Reached | None:
    """The first condition that is met, or None.

    Args:
        counters: of all learners together.
        mean_return: of the last so many episodes; None until there are that many.
    """
    limits = (
        ("env_frames", stop.env_frames, counters.env_frames),
        ("updates", stop.updates, counters.updates),
        ("seconds", stop.seconds, counters.seconds),
        ("dollars", stop.dollars, counters.dollars),
    )
    for name, limit, value in limits:
        if limit and value >= limit:
            return Reached(name, f"stop.{name}: {value:.10g} of {limit:.10g}")
    if stop.mean_return is not None:
        mean = mean_return(stop.mean_return_episodes)
        if mean is not None and mean >= stop.mean_return:
            return Reached(
                "mean_return",
                f"stop.mean_return: {mean:.4g} over {stop.mean_return_episodes} episodes, "
                f"wanted {stop.mean_return:g}",
            )
    return None


def peer_reached(text: str) -> Reached:
    """What a peer has met, as its beat says: `learner 2: stop.KEY: ...`."""
    return Reached(text.partition("stop.")[2].partition(":")[0], text)
