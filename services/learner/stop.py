"""Stop conditions and stop requests of a learner. The first one that is met ends the run."""

import logging
import math
from typing import TYPE_CHECKING

from seedbed.config.run import Stop
from seedbed.gossip.membership import Membership
from seedbed.gossip.second_reading import SecondReading
from seedbed.runs.stop import MetCondition, met_condition
from seedbed.telemetry import Telemetry
from seedbed.telemetry.counters import Counters

if TYPE_CHECKING:
    from seedbed.services.learner.hosts.host import LearnerHost


log = logging.getLogger(__name__)


class RunStop:
    """End of a run: a request to stop, or a stop condition that is met.

    Attributes:
        reason: why the run ends, in words; None while it goes on.
        requested: a signal has requested the end.
        met: the stop condition that is met, by this learner or by all together.
        second_reading: confirms what peers have stated, before it ends the run; None without peers.
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
        self.second_reading: SecondReading | None = None

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

    def check_conditions(self, awaits_update: bool = False) -> MetCondition | None:
        """Return the stop condition that is met, or None. A condition that is met ends the run.

        Args:
            awaits_update: the first update is due, and frames do not end the run before it.
        """
        self.met = self._find()
        if awaits_update and self.met is not None and self.met.key == "env_frames":
            self.met = None
        if self.met is not None:
            self._telemetry.stop_condition = self.met.text
            self.reason = self.reason or self.met.text
        return self.met

    def _find(self) -> MetCondition | None:
        members, hosts = self._members, self._hosts
        # All hosts end for the same condition, because the first one alone judges.
        if hosts is not None and (self.told is not None or not hosts.is_first):
            return self.told
        counters = self._telemetry.whole_counters()
        if members is None:
            return met_condition(self._stop, counters, self._own_mean_return)
        met = self._find_of_all(members, counters)
        alone = met_condition(self._stop, counters, lambda _: None)
        if (
            met is None
            or self.second_reading is None
            or (alone is not None and alone.key == met.key)
        ):
            return met
        answers = self.second_reading.answers()
        if answers is None:
            return None
        confirmed = self._find_of_all(members.confirmed_by(answers), counters)
        if confirmed is None:
            told = "; ".join(
                f"learner {rank}: {status.env_frames:,} frames, {status.dollars:.4g} dollars"
                for rank, status in sorted(answers.items())
            )
            log.warning("the run goes on: %s, but not by the peers' answers (%s)", met.text, told)
        return confirmed

    def _find_of_all(self, members: Membership, counters: Counters) -> MetCondition | None:
        """Return the stop condition that all learners together meet, or one of them."""
        telemetry = self._telemetry

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
