"""The cost formula of the SEED paper (section 4.4, appendix A.5), and what does not follow from it.

dollars = (CPUs x price of a core + devices x price of a device) x 1e9 / (3600 x frames a second)
"""

from collections.abc import Iterator
from typing import NamedTuple

from seedbed.papers.printed import rounding_of, value_of
from seedbed.papers.seed_tables import (
    ACTION_REPEAT,
    PRICES,
    RATES,
    TPU_V3,
    Bill,
    Rate,
    Setup,
    Split,
)

# The speeds that a cost is computed from are rounded too: a smaller difference says nothing.
TOLERANCE = 0.02


class Dollars(NamedTuple):
    """US dollars of 1e9 frames, or of an hour. None is unknown."""

    actors: float | None
    learner: float | None

    @property
    def total(self) -> float | None:
        """Their sum; None where one is unknown."""
        if self.actors is None or self.learner is None:
            return None
        return self.actors + self.learner


def device_prices() -> dict[str, float]:
    """Return Table 3's US dollars an hour of a GPU or a TPU chip, which has two cores."""
    prices = {row.accelerator: value_of(row.price) or 0.0 for row in PRICES if row.accelerator}
    return {**prices, TPU_V3: 2 * prices[TPU_V3]}


CPU_PRICE = value_of(PRICES[0].price) or 0.0
DEVICE_PRICES = device_prices()


def for_billion_frames(hourly: Dollars, frames_per_s: float) -> Dollars:
    """Return what 1e9 frames cost at a rate.

    Args:
        hourly: US dollars an hour.
        frames_per_s: Environment frames a second, above 0.
    """
    hours = 1e9 / 3600 / frames_per_s
    return Dollars(*(None if part is None else part * hours for part in hourly))


def recomputed(setup: Setup) -> Dollars:
    """Return US dollars of 1e9 frames of a row by the formula and Table 3.

    Args:
        setup: A row; without CPUs, or with an accelerator that Table 3 lacks, a part is None.
    """
    device = DEVICE_PRICES.get(setup.accelerator)
    hourly = Dollars(
        None if setup.cpus is None else setup.cpus * CPU_PRICE,
        None if device is None else setup.devices * device,
    )
    return for_billion_frames(hourly, value_of(setup.speed) or 0.0)


def recomputed_ratio(bill: Bill, rows: tuple[Bill, ...]) -> float | None:
    """Return IMPALA's cost over the row's, both recomputed; None for IMPALA's own rows.

    Args:
        bill: A row of Table 4, 5 or 12.
        rows: All rows of its table.
    """
    if not bill.ratio:
        return None
    baseline = next(
        row.setup
        for row in rows
        if (row.setup.architecture, row.setup.model) == ("IMPALA", bill.setup.model)
    )
    theirs, own = recomputed(baseline).total, recomputed(bill.setup).total
    return theirs / own if theirs and own else None


def speed_ratio(row: Rate) -> float | None:
    """Return a row's speed over that of the first row with its environment and model.

    Args:
        row: Of Table 1; the first row itself has no ratio.
    """
    key = (row.setup.environment, row.setup.model)
    first = next(one for one in RATES if (one.setup.environment, one.setup.model) == key)
    if first is row:
        return None
    return (value_of(row.setup.speed) or 0.0) / (value_of(first.setup.speed) or 1.0)


def step_ms(setup: Setup) -> float:
    """Return the milliseconds between two steps of one environment, by Little's law.

    No environment can wait longer than this for its actions, so Table 13 must stay below it.

    Args:
        setup: A row with environments and speed.
    """
    speed = value_of(setup.speed) or 0.0
    return 1e3 * setup.envs * ACTION_REPEAT[setup.environment] / speed


def is_off(printed: str, computed: float | None) -> bool:
    """Return whether a printed figure is further off than rounding explains.

    Args:
        printed: As the paper prints it; "" is nothing to compare.
        computed: In its unit; None is nothing to compare.
    """
    value = value_of(printed)
    if value is None or computed is None:
        return False
    return abs(computed - value) > max(rounding_of(printed), TOLERANCE * value)


def columns_of(row: Bill | Split, rows: tuple[Bill, ...] = ()) -> Iterator[tuple[str, str, float]]:
    """Yield each printed column of a row that the formula gives: name, printed, recomputed.

    Args:
        row: Of Table 4, 5, 11 or 12.
        rows: All rows of its table, for the ratios.
    """
    dollars = recomputed(row.setup)
    found: tuple[tuple[str, str, float | None], ...]
    if isinstance(row, Bill):
        found = (
            ("cost", row.cost, dollars.total),
            ("ratio", row.ratio, recomputed_ratio(row, rows)),
        )
    else:
        found = (
            ("actors", row.actors, dollars.actors),
            ("learner", row.learner, dollars.learner),
            ("total", row.total, dollars.total),
        )
    yield from ((name, text, value) for name, text, value in found if text and value is not None)
