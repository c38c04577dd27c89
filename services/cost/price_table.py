"""The rows of price tables, with the tables that ship."""

from functools import cache
from importlib import resources
from typing import Annotated, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field

Tier: TypeAlias = Literal["on-demand", "spot"]
Dollars = Annotated[float, Field(ge=0)]


class Row(BaseModel):
    """Base of the rows."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _SourcedRow(Row):
    source: str = Field("", description="Key of the table's sources; default: the table's own.")


class Family(_SourcedRow):
    """Unit prices of a machine family, US dollars an hour."""

    cpu: Dollars = Field(description="One vCPU.")
    memory_gib: Dollars = Field(description="One GiB of memory.")
    spot: Annotated[float, Field(ge=0, le=1)] = Field(description="Spot's part of the list price.")

    def hour(self, cpus: float, memory_gib: float, tier: Tier) -> float:
        """Return the US dollars an hour of a request."""
        part = self.spot if tier == "spot" else 1.0
        return part * (cpus * self.cpu + memory_gib * self.memory_gib)


class _Tiered(_SourcedRow):
    """Base of the rows with a list price and a Spot price."""

    on_demand: Dollars = Field(description="List price.")
    spot: Dollars = Field(description="Spot price.")

    def hour(self, tier: Tier) -> float:
        """Return the US dollars an hour of one."""
        return self.spot if tier == "spot" else self.on_demand


class Accelerator(_Tiered):
    """Price of one GPU, or of one TPU chip, US dollars an hour."""

    host_included: bool = Field(False, description="CPU and memory of its pod cost nothing more.")
    family: str = Field("", description="Machine family that it is attached to.")


class Machine(_Tiered):
    """Price of a whole machine with its accelerators, US dollars an hour."""

    accelerator: str = Field(description="Node label of the accelerator.")
    count: Annotated[float, Field(gt=0)] = Field(description="Accelerators in it.")
    cpus: Dollars = Field(description="vCPUs in it.")
    memory_gib: Dollars = Field(description="GiB of memory in it.")
    highest: Dollars = Field(0.0, description="Highest price found, where sources disagree.")


class Prices(Row):
    """Rows that a user adds to a table or replaces."""

    families: dict[str, Family] = Field(default_factory=dict, description="By machine family.")
    accelerators: dict[str, Accelerator] = Field(
        default_factory=dict, description="By the node label of the accelerator."
    )
    machines: dict[str, Machine] = Field(default_factory=dict, description="By machine type.")
    volumes: dict[str, Dollars] = Field(
        default_factory=dict, description="One GiB for a month, by storage class."
    )


class Source(Row):
    """Origin of a row."""

    date: str
    text: str


class Table(Prices):
    """A price table with its date."""

    date: str
    source: str
    sources: dict[str, Source] = Field(default_factory=dict)
    zone_gib: Dollars = Field(0.0, description="One GiB from one zone to another.")


@cache
def tables() -> dict[str, Table]:
    """Return the tables that ship, by name."""
    text = resources.files("seedbed.services.cost").joinpath("prices.yaml").read_text()
    return {name: Table.model_validate(table) for name, table in yaml.safe_load(text).items()}
