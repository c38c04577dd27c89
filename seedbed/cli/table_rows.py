"""The rows of `seedbed table` as JSON: as printed, by the formula, by other prices, and ours."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from seedbed.cli.table_ours import Measured
from seedbed.cli.table_prices import Actors, Learner, PriceTags, Tier
from seedbed.papers.printed import value_of
from seedbed.papers.seed_costs import (
    Dollars,
    columns_of,
    for_billion_frames,
    is_off,
    recomputed,
    speed_ratio,
    step_ms,
)
from seedbed.papers.seed_tables import (
    BILLS,
    LATENCIES,
    MISPRINTS,
    PRICES,
    RATES,
    SPLITS,
    TPU_V3,
    Bill,
    Latency,
    Price,
    Rate,
    Setup,
    Split,
)

TIERS: tuple[Tier, ...] = ("on-demand", "spot")
SETUPS: dict[int, tuple[Setup, ...]] = {
    1: tuple(row.setup for row in RATES),
    **{number: tuple(row.setup for row in rows) for number, rows in BILLS.items()},
    11: tuple(row.setup for row in SPLITS),
}


class Pricing(NamedTuple):
    """What the command line says of prices. None is the row's own hardware."""

    tags: PriceTags
    actors: Actors | None
    learner: Learner | None


def paper_rows(table: int, every: Sequence[PriceTags]) -> list[dict[str, Any]]:
    """Return the rows of a table: what is printed, and what the formula and Table 3 give.

    Args:
        table: Its number.
        every: The price tables to set beside Table 3.
    """
    if table == 1:
        return [_rate(row) for row in RATES]
    if table == 3:
        return [_price(row, every) for row in PRICES]
    if table == 13:
        return [_latency(row) for row in LATENCIES]
    if table == 11:
        return [_bill(table, row, ()) for row in SPLITS]
    return [_bill(table, row, BILLS[table]) for row in BILLS[table]]


def repriced_rows(table: int, pricing: Pricing) -> list[dict[str, Any]]:
    """Return the paper's rows, at the paper's speeds, by other prices or on other hardware.

    Args:
        table: Its number, of 1, 4, 5, 11 and 12.
        pricing: Prices and hardware.
    """
    rows = []
    for setup in SETUPS[table]:
        own = pricing.tags.own_hourly(setup)
        hourly = Dollars(
            own.actors
            if pricing.actors is None or setup.cpus is None
            else setup.cpus * pricing.actors.cpu_hour,
            own.learner if pricing.learner is None else pricing.learner.hour,
        )
        speed = value_of(setup.speed) or 0.0
        there = recomputed(setup).total
        even = hourly.total / 3600 * 1e9 / there if hourly.total and there else None
        rows.append(
            {
                **_names(setup),
                "actors_dollars_an_hour": hourly.actors,
                "learner_dollars_an_hour": hourly.learner,
                "even_at_frames_per_s": even,
                "frames_per_s": speed,
                **_dollars(for_billion_frames(hourly, speed)),
            }
        )
    return rows


def what_if_row(frames_per_s: float, pricing: Pricing) -> dict[str, Any]:
    """Return what 1e9 frames cost at a speed of the user's.

    Args:
        frames_per_s: Environment frames a second, above 0.
        pricing: With actors, their CPUs, and a learner.
    """
    actors, learner = pricing.actors, pricing.learner
    hourly = Dollars(
        actors.cpus * actors.cpu_hour if actors else None, learner.hour if learner else None
    )
    return {
        "row": "yours",
        "actors_dollars_an_hour": hourly.actors,
        "learner_dollars_an_hour": hourly.learner,
        "frames_per_s": frames_per_s,
        **_dollars(for_billion_frames(hourly, frames_per_s)),
    }


def our_row(measured: Measured, pricing: Pricing) -> dict[str, Any]:
    """Return a measurement with its cost.

    Args:
        measured: Of a run or a benchmark.
        pricing: Prices, and the hardware to put in the place of its own.
    """
    speed = measured.frames_per_s
    dollars = Dollars(None, None)
    total = measured.metered_dollars
    if speed and total is None:
        dollars = for_billion_frames(_our_hourly(measured, pricing), speed)
        total = dollars.total
        if total is None and not (pricing.actors or pricing.learner):
            hour = _whole_hour(measured, pricing.tags)
            total = None if hour is None else hour / 3600 * 1e9 / speed
    return {
        **measured._asdict(),
        "actors_dollars": dollars.actors,
        "learner_dollars": dollars.learner,
        "dollars": total,
    }


def _whole_hour(measured: Measured, tags: PriceTags) -> float | None:
    """Return the US dollars an hour of a machine that nobody has split; None is unknown."""
    whole = tags.table.machines.get(measured.machine_type or "")
    if whole:
        # A machine that was lent in part is paid in part.
        part = min(1.0, measured.accelerators / whole.count) if measured.accelerators else 1.0
        return part * whole.on_demand
    if measured.cpus is None or measured.accelerators:
        return None
    return measured.cpus * tags.cpu_hour(tags.default_family)


def _our_hourly(measured: Measured, pricing: Pricing) -> Dollars:
    cpus, learner_cpus = measured.cpus, measured.learner_cpus
    core = pricing.tags.cpu_hour(pricing.tags.default_family)
    actors = learner = None
    if pricing.actors and pricing.actors.cpus:
        actors = pricing.actors.cpus * pricing.actors.cpu_hour
    elif cpus is not None and learner_cpus is not None:
        actor_core = pricing.actors.cpu_hour if pricing.actors else core
        actors = max(0.0, cpus - learner_cpus) * actor_core
    if pricing.learner:
        learner = pricing.learner.hour
    elif learner_cpus is not None and not measured.accelerators:
        learner = learner_cpus * core
    return Dollars(actors, learner)


def _rate(row: Rate) -> dict[str, Any]:
    return {
        **_names(row.setup),
        "batch_size": row.batch_size,
        "printed": {"frames_per_s": row.setup.speed, "ratio": row.ratio or None},
        "recomputed": {"ratio": speed_ratio(row), **_dollars(recomputed(row.setup))},
        "misprints": {},
        "note": row.note,
    }


def _bill(table: int, row: Bill | Split, rows: tuple[Bill, ...]) -> dict[str, Any]:
    known = {"cost": "dollars", "actors": "actors_dollars", "learner": "learner_dollars"}
    printed: dict[str, str] = {"frames_per_s": row.setup.speed}
    values = _dollars(recomputed(row.setup))
    misprints = {}
    for column, text, value in columns_of(row, rows):
        name = known.get(column, "dollars" if column == "total" else column)
        printed[name], values[name] = text, value
        if is_off(text, value):
            key = (table, row.setup.environment, row.setup.name, column)
            misprints[name] = MISPRINTS.get(key, "")
    return {
        **_names(row.setup),
        **({"actors": row.actors} if isinstance(row, Bill) else {}),
        "printed": printed,
        "recomputed": values,
        "misprints": misprints,
    }


def _price(row: Price, every: Sequence[PriceTags]) -> dict[str, Any]:
    return {
        "row": row.resource,
        "printed": {"dollars_an_hour": row.price},
        "tables": {
            tags.name: {tier: _of_table(row, tags, tier) for tier in TIERS} for tags in every
        },
        "misprints": {},
    }


def _of_table(row: Price, tags: PriceTags, tier: Tier) -> float | None:
    if not row.accelerator:
        family = tags.default_family
        has_tier = tier == "on-demand" or tags.table.families[family].spot < 1
        return tags.cpu_hour(family, tier) if has_tier else None
    price = tags.device_hour(row.accelerator, tier)
    # The tables price chips, of two cores.
    return price / 2 if price is not None and row.accelerator == TPU_V3 else price


def _latency(row: Latency) -> dict[str, Any]:
    theirs, ours = (None if setup is None else step_ms(setup) for setup in row.setups)
    impala, seed = value_of(row.impala), value_of(row.seed)
    return {
        "environment": row.environment,
        "row": row.model,
        "printed": {"impala_ms": row.impala or None, "seed_ms": row.seed},
        "recomputed": {
            "impala_step_ms": theirs,
            "seed_step_ms": ours,
            "ratio": impala / seed if impala and seed else None,
        },
        "misprints": {},
    }


def _names(setup: Setup) -> dict[str, Any]:
    return {
        "environment": setup.environment,
        "row": setup.name,
        "accelerators": setup.accelerators,
        "envs": setup.envs,
        "cpus": setup.cpus,
    }


def _dollars(dollars: Dollars) -> dict[str, Any]:
    return {
        "actors_dollars": dollars.actors,
        "learner_dollars": dollars.learner,
        "dollars": dollars.total,
    }
