"""Dated price tables, and the price of a pod's requests."""

from collections.abc import Collection
from importlib import resources
from typing import Annotated, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field

from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.cost.usage import Usage

Tier: TypeAlias = Literal["on-demand", "spot"]
Dollars = Annotated[float, Field(ge=0)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Family(_Row):
    """Unit prices of a machine family, US dollars an hour."""

    cpu: Dollars = Field(description="One vCPU.")
    memory_gib: Dollars = Field(description="One GiB of memory.")
    spot: Annotated[float, Field(ge=0, le=1)] = Field(description="Spot's part of the list price.")


class Accelerator(_Row):
    """Price of one GPU, or of one TPU chip, US dollars an hour."""

    on_demand: Dollars = Field(description="List price.")
    spot: Dollars = Field(description="Spot price.")
    host_included: bool = Field(False, description="CPU and memory of its pod cost nothing more.")


class Prices(_Row):
    """Rows that a user adds to a table or replaces."""

    families: dict[str, Family] = Field(default_factory=dict, description="By machine family.")
    accelerators: dict[str, Accelerator] = Field(
        default_factory=dict, description="By the node label of the accelerator."
    )


class Table(Prices):
    """A price table with its date."""

    date: str
    source: str


class Settings(_Row):
    """The chart's `cost` values that set prices."""

    priceTable: str = Field("us-central1-aug-2026", description="Which of the tables.")
    prices: Prices = Field(default_factory=Prices, description="Rows over those of the table.")
    defaultFamily: str = Field("n2", description="Where a node's family is not known.")
    defaultTier: Tier = Field("on-demand", description="Where a node's tier is not known.")
    readNodes: bool = Field(False, description="Whether nodes may be read.")


def tables() -> dict[str, Table]:
    """Return the tables that ship, by name."""
    text = resources.files("seedbed.services.cost").joinpath("prices.yaml").read_text()
    return {name: Table.model_validate(table) for name, table in yaml.safe_load(text).items()}


class PriceList:
    """A table with a user's rows over it.

    Attributes:
        unknown: What had no row, in words. The dearest row of the kind prices it, so that a budget
            ends early and not late.
    """

    def __init__(self, settings: Settings) -> None:
        """Look the table up.

        Raises:
            SeedbedError: CONFIG, there is no such table.
        """
        shipped = tables()
        if settings.priceTable not in shipped:
            raise ConfigError(
                f"cost.priceTable {settings.priceTable!r} is unknown: one of {sorted(shipped)}"
            )
        table = shipped[settings.priceTable]
        self.name, self.date = settings.priceTable, table.date
        self.families = table.families | settings.prices.families
        self.accelerators = table.accelerators | settings.prices.accelerators
        self.unknown: set[str] = set()
        self._default = settings

    def dollars_per_hour(self, usage: Usage) -> float:
        """Return the US dollars an hour of one pod's requests."""
        tier = self.tier(usage)
        total, host_included = 0.0, False
        if usage.accelerators:
            row = self._accelerator(usage)
            total += usage.accelerators * (row.spot if tier == "spot" else row.on_demand)
            host_included = row.host_included
        if not host_included:
            family = self._family(usage)
            part = family.spot if tier == "spot" else 1.0
            total += part * (usage.cpus * family.cpu + usage.memory_gib * family.memory_gib)
        return total

    def tier(self, usage: Usage) -> Tier:
        """Return the pod's tier, or the default where the tier is unknown."""
        if usage.spot is None:
            return self._default.defaultTier
        return "spot" if usage.spot else "on-demand"

    def _family(self, usage: Usage) -> Family:
        name = usage.family or self._default.defaultFamily
        if name in self.families:
            return self.families[name]
        self._note("machine family", name, self.families)
        return max(self.families.values(), key=lambda row: row.cpu)

    def _accelerator(self, usage: Usage) -> Accelerator:
        kind = "tpu" if usage.is_tpu else "nvidia"
        rows = {name: row for name, row in self.accelerators.items() if name.startswith(kind)}
        rows = rows or self.accelerators
        if usage.accelerator in rows:
            return rows[usage.accelerator]
        self._note("accelerator", usage.accelerator or f"without a name ({kind})", rows)
        return max(rows.values(), key=lambda row: row.on_demand)

    def _note(self, what: str, name: str, rows: Collection[str]) -> None:
        # A table of one price, as the paper's, prices everything.
        if len(rows) > 1:
            self.unknown.add(f"{what} {name}")
