"""Prices against published totals of whole machines, which the table does not hold."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.cost.price_table import tables
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


def dollars(of: Usage) -> float:
    return prices().cost(of).charged


def usage(**of: Any) -> Usage:
    return Usage(**{"component": "learner", "cpus": 4.0, "memory_gib": 16.0, **of})


@pytest.mark.parametrize("family", MACHINES)
def test_a_whole_machine_costs_what_is_published(family: str) -> None:
    memory, listed, spot = MACHINES[family]
    machine = {"memory_gib": memory, "family": family}
    assert dollars(usage(**machine, spot=False)) == pytest.approx(listed, rel=1e-3)
    assert dollars(usage(**machine, spot=True)) == pytest.approx(spot, rel=2e-3)


def test_without_nodes_the_smallest_machine_with_the_accelerator_counts() -> None:
    l4 = usage(spot=False, accelerators=1, accelerator="nvidia-l4")
    assert prices().cost(l4) == (0.706832, 0.706832, pytest.approx(8.00333)), "g2-standard-4"
    assert dollars(replace(l4, cpus=6)) == 0.853624, "g2-standard-8"
    assert dollars(replace(l4, accelerators=2)) == 2.000833, "g2-standard-24"
    h100 = usage(spot=False, accelerators=1, accelerator="nvidia-h100-80gb")
    assert prices().cost(h100) == (11.06125, 11.06125, 88.49)
    # The price of a TPU's chips has its host in it; a T4 is beside an n1.
    tpu = usage(spot=True, accelerators=4, is_tpu=True, accelerator="tpu-v6e-slice")
    assert dollars(tpu) == pytest.approx(4 * 0.544)
    t4 = usage(spot=False, accelerators=2, accelerator="nvidia-tesla-t4")
    assert dollars(t4) == pytest.approx(2 * 0.35 + 4 * 0.031611 + 16 * 0.004237)


def on_node(**of: Any) -> Usage:
    node = {"node": "n", "machine": "a3-highgpu-8g", "node_cpus": 208.0, "node_memory_gib": 1800.0}
    return usage(**{"spot": False, "node_accelerators": 8.0, **node, **of})


def test_the_node_of_an_accelerator_is_paid_whole_and_once() -> None:
    gpu = {"accelerators": 1.0, "accelerator": "nvidia-h100-80gb"}
    alone = prices().costs([on_node(**gpu)])[0]
    assert alone == (88.49, pytest.approx(88.49 / 8), 88.49), "others may pay for the rest"
    actor = on_node(component="actor", accelerator="nvidia-h100-80gb")
    both = prices().costs([on_node(**gpu), on_node(**gpu), actor])
    assert [cost.charged for cost in both] == [88.49 / 2, 88.49 / 2, 0.0]
    elsewhere = replace(actor, node="m", family="n2", accelerator="", node_accelerators=0.0)
    assert prices().costs([on_node(**gpu), elsewhere])[1].charged > 0.1


def test_a_part_of_a_gpu_costs_its_part_of_the_machine() -> None:
    node = {"machine": "a2-highgpu-1g", "node_cpus": 12.0, "node_memory_gib": 83.0}
    part = {"accelerators": 1.0, "accelerator": "nvidia-tesla-a100", "cpus": 1.0}
    mig = on_node(**node, **part, parts=7, node_accelerators=7.0)
    assert prices().costs([mig])[0].charged == pytest.approx(3.673385 / 7)
    assert prices().costs([mig])[0].upper == pytest.approx(3.673385)
    # Without nodes the pod's own selector says that the GPU is divided.
    shared = usage(spot=False, memory_gib=1.0, parts=4, **part)
    assert dollars(shared) == pytest.approx(3.673385 / 4)


def test_an_unknown_tier_has_bounds() -> None:
    cost = prices().cost(usage(family="n2"))
    assert cost == (pytest.approx(0.19424, rel=1e-3), pytest.approx(0.09212, rel=2e-3), cost[0])
    flex = prices().cost(usage(family="n2", spot=False, flex=True))
    assert flex == cost, "flex-start has no row: at most the list price"
    assert prices().cost(usage(family="n2", spot=False)).lower == cost.charged


def test_sources_that_disagree_are_a_bound() -> None:
    b200 = usage(spot=False, accelerators=8, accelerator="nvidia-b200")
    assert prices().cost(b200) == (90.216, 90.216, 148.21)


def test_each_row_has_a_dated_source() -> None:
    for table in tables().values():
        rows = [*table.families.values(), *table.accelerators.values(), *table.machines.values()]
        assert {row.source for row in rows} <= {"", *table.sources}
        assert all(date.fromisoformat(source.date) for source in table.sources.values())


def test_volumes() -> None:
    ours = prices()
    # Four of 64 GiB, kept after the end.
    assert 4 * ours.volume("standard-rwo", 64) == pytest.approx(0.035, rel=0.01)
    assert ours.volume("local-path", 64) == 0.0
    assert not ours.unknown
    assert ours.volume("z9", 730) == pytest.approx(0.17), "the dearest"
    assert ours.volume("", 730) == pytest.approx(0.17)
    assert ours.unknown == {"storage class z9", "storage class (the cluster's default)"}
    assert prices(priceTable="sep-2019").volume("standard-rwo", 64) == 0.0


def test_the_papers_table() -> None:
    """Table 3: a core 0.0475, a P100 1.46, a TPU v3 core 1.00; a chip has two cores."""
    paper = prices(priceTable="sep-2019")
    assert paper.cost(usage(family="c3")).charged == pytest.approx(4 * 0.0475)
    assert paper.cost(usage(cpus=0, accelerators=1)).charged == pytest.approx(1.46)
    chips = usage(cpus=0, accelerators=4, is_tpu=True, accelerator="tpu-v6e-slice")
    assert paper.cost(chips).charged == pytest.approx(8 * 1.00), "a v3-8"
    assert not paper.unknown


def test_what_is_not_known_has_the_dearest_final_price() -> None:
    ours = prices()
    machine = usage(family="z9", spot=False)
    assert ours.cost(machine).charged == pytest.approx(4 * 0.0445 + 16 * 0.0049225), "Autopilot"
    # The dearest list price has nearly the cheapest Spot price.
    assert ours.cost(replace(machine, spot=True)).charged == pytest.approx(0.121, rel=0.01)
    assert ours.cost(machine).lower == pytest.approx(0.13402, rel=1e-3), "e2"
    gpu = usage(accelerators=1, accelerator="nvidia-z9", spot=False)
    assert ours.cost(gpu) == (
        pytest.approx(92.214 / 8),
        pytest.approx(0.54, rel=0.03),
        math.inf,
    )
    tpu = usage(accelerators=1, accelerator="tpu7x", is_tpu=True, spot=True)
    assert ours.cost(tpu).charged == pytest.approx(0.92), "v4, though v5p's list price is higher"
    assert ours.unknown == {"machine family z9", "accelerator nvidia-z9", "accelerator tpu7x"}


def test_a_users_rows_are_over_the_tables() -> None:
    own = {"families": {"z9": {"cpu": 1, "memory_gib": 0, "spot": 0.5}}}
    ours = prices(prices=own, defaultFamily="z9", defaultTier="spot")
    assert ours.cost(usage()) == (2.0, 2.0, 4.0)
    assert ours.tier(usage()) == "spot"
    assert ours.tier(usage(spot=False)) == "on-demand"
    # A price of an accelerator is of the device, whatever machine it is in.
    l4 = {"accelerators": {"nvidia-l4": {"on_demand": 2.0, "spot": 1.0}}}
    gpu = usage(family="g2", accelerators=1, accelerator="nvidia-l4", spot=False)
    assert prices(prices=l4).cost(gpu).charged == pytest.approx(2 + 0.146792, rel=1e-3)


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(SeedbedError, match=r"'2031' is unknown: one of \['sep-2019', 'us-central1"):
        prices(priceTable="2031")
