"""Traffic between zones, which is paid by the byte: the learners count, the nodes say where."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from seedbed.numbers import check_number
from seedbed.services.cost.prices import Cost
from seedbed.services.cost.usage import Usage

# What a learner names the other end, and the component of its pods.
PEERS = {"actor": "actor", "shard": "replay", "learner": "learner"}
# A learner that has said nothing for that time sends nothing.
STALE_S = 60.0


@dataclass
class _Count:
    at: float
    bytes: float
    per_s: float = 0.0


class Traffic:
    """Bytes a second between the learners and the other pods, by the component of those."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Count nothing yet.

        Args:
            now: Returns monotonic time, in seconds.
        """
        self._now = now
        self._counts: dict[tuple[int, str], _Count] = {}

    def count(self, rank: int, status: Mapping[str, Any]) -> None:
        """Take the byte counts of a learner's status."""
        now = self._now()
        for component, total in _totals(status.get("network_bytes")).items():
            last = self._counts.get((rank, component))
            count = _Count(now, total)
            # A learner that began anew counts from 0.
            if last is not None and now > last.at and total >= last.bytes:
                count.per_s = (total - last.bytes) / (now - last.at)
            self._counts[rank, component] = count

    def costs(self, usages: Sequence[Usage], zone_gib: float) -> dict[str, Cost]:
        """Return the US dollars an hour of what goes from zone to zone, by component.

        Args:
            usages: The present pods. Without their zones nothing is charged, and all that goes
                between pods is the upper bound.
            zone_gib: Price of a GiB that leaves a zone.
        """
        costs = {}
        for component in PEERS.values():
            per_s = sum(
                count.per_s
                for (_, of), count in self._counts.items()
                if of == component and self._now() - count.at < STALE_S
            )
            if per_s:
                every = per_s * 3600 / 2**30 * zone_gib
                across = _across(usages, component)
                costs[component] = (
                    Cost(0.0, 0.0, every) if across is None else Cost.exactly(every * across)
                )
        return costs


def _totals(counted: Any) -> dict[str, float]:
    """Return bytes by component; what learners send each other is counted by its sender."""
    totals: dict[str, float] = {}
    if isinstance(counted, Mapping):
        for name, number in counted.items():
            peer, _, direction = str(name).partition(" ")
            if peer in PEERS and (peer != "learner" or direction == "sent"):
                try:
                    check_number(str(name), number)
                except (TypeError, ValueError):
                    continue
                totals[PEERS[peer]] = totals.get(PEERS[peer], 0.0) + number
    return totals


def _across(usages: Sequence[Usage], component: str) -> float | None:
    """Return the part of the pairs of a learner and a pod in two zones; None where unknown."""
    learners = [usage for usage in usages if usage.component == "learner"]
    others = [usage for usage in usages if usage.component == component]
    pairs = [(one, other) for one, other in product(learners, others) if one is not other]
    if not pairs or not all(one.zone and other.zone for one, other in pairs):
        return None
    return sum(one.zone != other.zone for one, other in pairs) / len(pairs)
