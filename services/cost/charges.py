"""What a release costs now: pods, volumes and traffic, by component and tier."""

from collections.abc import Iterable, Sequence
from typing import Any

from kubernetes.utils import parse_quantity

from seedbed.services.cost.ledger import Charge
from seedbed.services.cost.prices import Cost, PriceList
from seedbed.services.cost.traffic import Traffic
from seedbed.services.cost.usage import Usage, component_of

# Tiers that are no tier of a machine.
VOLUME, TRAFFIC = "volume", "traffic"


def present_charges(
    pods: Sequence[tuple[Usage, float | None]],
    claims: Iterable[Any],
    traffic: Traffic,
    prices: PriceList,
) -> list[Charge]:
    """Return the charges of a release.

    Args:
        pods: Its pods, each with its start in Unix time; None where that is unknown.
        claims: Its `V1PersistentVolumeClaim`s.
        traffic: Its traffic.
        prices: The prices.
    """
    usages = [usage for usage, _ in pods]
    charges = [
        _charge((usage.component, prices.tier(usage)), cost, since)
        for (usage, since), cost in zip(pods, prices.costs(usages), strict=True)
    ]
    for claim in claims:
        cost = Cost.exactly(volume_rate(claim, prices))
        charges.append(_charge((component_of(claim), VOLUME), cost))
    for component, cost in traffic.costs(usages, prices.zone_gib).items():
        charges.append(_charge((component, TRAFFIC), cost))
    return charges


def _charge(part: tuple[str, str], cost: Cost, since: float | None = None) -> Charge:
    return Charge(part, cost.charged, since, (cost.lower, cost.upper))


def volume_rate(claim: Any, prices: PriceList) -> float:
    """Return the US dollars an hour of a volume; of one that is not made yet, of what is asked for.

    Args:
        claim: A `V1PersistentVolumeClaim`.
        prices: The prices.
    """
    capacity = (claim.status.capacity or {}) if claim.status else {}
    asked = (claim.spec.resources.requests or {}) if claim.spec.resources else {}
    size = float(parse_quantity(capacity.get("storage") or asked.get("storage") or "0"))
    return prices.volume(claim.spec.storage_class_name or "", size / 2**30)
