"""Prices against published totals of whole machines, which the table does not hold."""

from __future__ import annotations

from typing import Any

import pytest

from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.cost.prices import PriceList, Settings
from seedbed.services.cost.usage import Usage

# Machines of 4 vCPUs, us-central1, US dollars an hour: GiB, list, Spot.
MACHINES = {
    "e2": (16, 0.13402, 0.08042),
    "n1": (15, 0.19000, 0.06701),
    "n2": (16, 0.19424, 0.09212),
    "n2d": (16, 0.16898, 0.04891),
    "t2d": (16, 0.16898, 0.06304),
    "c3": (16, 0.20161, 0.04940),
    "c3d": (16, 0.18160, 0.04047),
    "c4": (15, 0.19767, 0.11861),
    "c4d": (15, 0.18711, 0.06568),
    "n4": (16, 0.18140, 0.08957),
    "n4d": (16, 0.16940, 0.08218),
}


def prices(**settings: Any) -> PriceList:
    return PriceList(Settings.model_validate(settings))


def usage(**of: Any) -> Usage:
    return Usage(**{"component": "learner", "cpus": 4.0, "memory_gib": 16.0, **of})


@pytest.mark.parametrize("family", MACHINES)
def test_a_whole_machine_costs_what_is_published(family: str) -> None:
    memory, listed, spot = MACHINES[family]
    machine = {"memory_gib": memory, "family": family}
    assert prices().dollars_per_hour(usage(**machine, spot=False)) == pytest.approx(
        listed, rel=1e-3
    )
    assert prices().dollars_per_hour(usage(**machine, spot=True)) == pytest.approx(spot, rel=2e-3)


def test_accelerators() -> None:
    gpu = usage(family="n1", spot=False, accelerators=2, accelerator="nvidia-l4")
    assert prices().dollars_per_hour(gpu) == pytest.approx(2 * 0.56 + 4 * 0.031611 + 16 * 0.004237)
    # The price of a TPU's chips has its host in it.
    tpu = usage(spot=True, accelerators=4, is_tpu=True, accelerator="tpu-v6e-slice")
    assert prices().dollars_per_hour(tpu) == pytest.approx(4 * 0.544)


def test_the_papers_table() -> None:
    """Table 3: a core 0.0475, a P100 1.46, a TPU v3 core 1.00; a chip has two cores."""
    paper = prices(priceTable="sep-2019")
    assert paper.dollars_per_hour(usage(family="c3")) == pytest.approx(4 * 0.0475)
    assert paper.dollars_per_hour(usage(cpus=0, accelerators=1)) == pytest.approx(1.46)
    chips = usage(cpus=0, accelerators=4, is_tpu=True, accelerator="tpu-v6e-slice")
    assert paper.dollars_per_hour(chips) == pytest.approx(8 * 1.00), "a v3-8"
    assert not paper.unknown


def test_what_is_not_known_is_said_and_dear() -> None:
    ours = prices()
    strange = usage(family="z9", spot=False)
    assert ours.dollars_per_hour(strange) == pytest.approx(4 * 0.034650 + 16 * 0.003938)
    ours.dollars_per_hour(usage(accelerators=1, accelerator="nvidia-z9"))
    assert ours.unknown == {"machine family z9", "accelerator nvidia-z9"}


def test_a_users_rows_are_over_the_tables() -> None:
    own = {"families": {"z9": {"cpu": 1, "memory_gib": 0, "spot": 0.5}}}
    ours = prices(prices=own, defaultFamily="z9", defaultTier="spot")
    assert ours.dollars_per_hour(usage()) == pytest.approx(4 * 0.5)
    assert ours.tier(usage()) == "spot"
    assert ours.tier(usage(spot=False)) == "on-demand"


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(SeedbedError, match=r"'2031' is unknown: one of \['sep-2019', 'us-central1"):
        prices(priceTable="2031")
