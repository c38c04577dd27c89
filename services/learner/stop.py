"""Stop conditions and stop requests. The first one that is met ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from seedbed.config.run import Stop
from seedbed.gossip.membership import Membership
from seedbed.telemetry import Counters, Telemetry


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
    """
    for name in ("env_frames", "updates", "seconds", "dollars"):
        limit, value = getattr(stop, name), getattr(counters, name)
        if limit and value >= limit:
            return MetCondition(name, f"stop.{name}: {value:.10g} of {limit:.10g}")
    if stop.mean_return is not None:
        mean = mean_return(stop.mean_return_episodes)
        if mean is not None and mean >= stop.mean_return:
            return MetCondition(
                "mean_return",
                f"stop.mean_return: {mean:.4g} over {stop.mean_return_episodes} episodes, "
                f"wanted {stop.mean_return:g}",
            )
    return None


def condition_of_peer(text: str) -> MetCondition:
    """Parse the condition that a peer's heartbeat reports: `learner 2: stop.KEY: ...`."""
    return MetCondition(text.partition("stop.")[2].partition(":")[0], text)


class RunStop:
    """End of a run: a request to stop, or a stop condition that is met.

    Attributes:
        reason: why the run ends, in words; None while it goes on.
        requested: a signal has requested the end.
        met: the stop condition that is met, by this learner or by all together.
    """

    def __init__(self, stop: Stop, telemetry: Telemetry, members: Membership | None) -> None:
        self._stop = stop
        self._telemetry = telemetry
        self._members = members
        self.reason: str | None = None
        self.requested = False
        self.met: MetCondition | None = None

    def request(self, reason: str) -> None:
        """End the run, unless it ends already. Safe in a signal handler."""
        self.requested = True
        self.reason = self.reason or reason

    def check_conditions(self) -> MetCondition | None:
        """Return the stop condition that is met, or None. A condition that is met ends the run."""
        self.met = self._find()
        if self.met is not None:
            self._telemetry.stop_condition = self.met.text
            self.reason = self.reason or self.met.text
        return self.met

    def _find(self) -> MetCondition | None:
        members, telemetry = self._members, self._telemetry
        if members is None:
            return met_condition(self._stop, telemetry.counters, telemetry.sessions.mean_return)
        if text := members.peers_over():
            return condition_of_peer(text)
        return met_condition(
            self._stop,
            members.total(telemetry.counters),
            lambda episodes: members.mean_return(telemetry.sessions.mean_return, episodes),
        )
