"""Stop conditions and stop requests. The first one that is met ends the run."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from seedbed.config.run import Stop
from seedbed.gossip.membership import Membership
from seedbed.numbers import InvalidNumbers, check_number
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import counted
from seedbed.telemetry import Counters, Telemetry

if TYPE_CHECKING:
    from seedbed.services.learner.hosts.host import LearnerHost


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
    for name in ("env_frames", "updates", "seconds", "dollars"):
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


class RunStop:
    """End of a run: a request to stop, or a stop condition that is met.

    Attributes:
        reason: why the run ends, in words; None while it goes on.
        requested: a signal has requested the end.
        met: the stop condition that is met, by this learner or by all together.
        told: the same, as another host of this learner has told it; None before.
    """

    def __init__(
        self,
        stop: Stop,
        telemetry: Telemetry,
        members: Membership | None,
        hosts: "LearnerHost | None" = None,
    ) -> None:
        self._stop = stop
        self._hosts = hosts
        self.told: MetCondition | None = None
        self._telemetry = telemetry
        self._members = members
        self.reason: str | None = None
        self._follows = False  # another host, which has stopped
        self.requested = False
        self.met: MetCondition | None = None

    def request(self, reason: str) -> None:
        """End the run, unless it ends already. Safe in a signal handler."""
        self.requested = True
        if self.reason is None or self._follows:
            self.reason, self._follows = reason, False

    def follow(self, host: int, reason: str, key: str | None) -> None:
        """End the run as another host of this learner does.

        Args:
            host: number of that host.
            reason: its reason, in words.
            key: the stop condition that is met; None where it is another reason.
        """
        if key is not None:
            self.told = MetCondition(key, reason)
        elif self.reason is None:
            self.reason, self._follows = f"host {host} stopped: {reason}", True

    def check_conditions(self) -> MetCondition | None:
        """Return the stop condition that is met, or None. A condition that is met ends the run."""
        self.met = self._find()
        if self.met is not None:
            self._telemetry.stop_condition = self.met.text
            self.reason = self.reason or self.met.text
        return self.met

    def _find(self) -> MetCondition | None:
        members, telemetry, hosts = self._members, self._telemetry, self._hosts
        # All hosts end for the same condition, because the first one alone judges.
        if hosts is not None and (self.told is not None or not hosts.is_first):
            return self.told
        counters = telemetry.whole_counters()
        if members is None:
            return met_condition(self._stop, counters, self._own_mean_return)

        def mean_return(episodes: int) -> float | None:
            return members.mean_return(self._own_mean_return, episodes)

        total = members.total(counters)
        met = met_condition(self._stop, total, mean_return)
        if met is not None or not (over := members.peers_over()):
            return met

        # What a peer says counts if the numbers of the heartbeats confirm it. Updates and seconds
        # are met by the learner that counts most of them. A mean return moves with each episode
        # that ends between two heartbeats: one standard error of this learner's mean is allowed.
        def highest_mean_return(episodes: int) -> float | None:
            mean, share = mean_return(episodes), members.share(episodes)
            own = telemetry.sessions.recent_returns.values(share)
            return None if mean is None else mean + float(own.std()) / math.sqrt(own.size)

        furthest = members.furthest(counters)
        met = met_condition(self._stop, furthest, highest_mean_return)
        if met is None or met.key not in over:
            return None
        return MetCondition(met.key, f"learner {over[met.key]}: {met.text}")

    def _own_mean_return(self, episodes: int) -> float | None:
        """Return the mean return of this learner's last episodes; None if it has fewer."""
        own = self._telemetry.sessions.mean_return
        return (
            own(episodes) if self._hosts is None else self._hosts.totals.mean_return(own, episodes)
        )
