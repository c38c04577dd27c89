"""Price of a pod by a dated table, with bounds where something is not known."""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from pydantic import Field

from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.cost.autoscaler import AutoscalerSettings
from seedbed.services.cost.price_table import Machine, Prices, Row, Tier, tables
from seedbed.services.cost.usage import Usage

# Hours of a month in which volumes are priced.
MONTH_HOURS = 730


class Settings(Row):
    """The chart's `cost` values that the meter reads."""

    priceTable: str = Field("us-central1-aug-2026", description="Which of the tables.")
    prices: Prices = Field(default_factory=Prices, description="Rows over those of the table.")
    defaultFamily: str = Field("n2", description="Where a node's family is not known.")
    defaultTier: Tier = Field("on-demand", description="Where a node's tier is not known.")
    readNodes: bool = Field(False, description="Whether nodes may be read.")
    autoscaler: AutoscalerSettings = Field(default_factory=AutoscalerSettings)


class Cost(NamedTuple):
    """US dollars an hour: what is charged, between the bounds of what is not known."""

    charged: float
    lower: float
    upper: float

    @classmethod
    def exactly(cls, dollars: float) -> "Cost":
        """Return the cost where everything is known."""
        return cls(dollars, dollars, dollars)

    def part(self, fraction: float) -> "Cost":
        """Return a fraction of the cost."""
        return Cost(self.charged * fraction, self.lower * fraction, self.upper * fraction)


class PriceList:
    """A table with a user's rows over it.

    Attributes:
        unknown: What had no row, in words. The dearest final price of the kind prices it, so that
            a budget ends early and not late.
        zone_gib: US dollars for one GiB from one zone to another.
        settings: The chart's values.
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
        table, own = shipped[settings.priceTable], settings.prices
        self.name, self.date, self.zone_gib = settings.priceTable, table.date, table.zone_gib
        self.families = table.families | own.families
        self.accelerators = table.accelerators | own.accelerators
        self.volumes = table.volumes | own.volumes
        # A user's price of an accelerator is of the device, whatever machine it is in.
        machines = {
            name: row
            for name, row in table.machines.items()
            if row.accelerator not in own.accelerators
        }
        self.machines = machines | own.machines
        self.unknown: set[str] = set()
        self.settings = settings

    def costs(self, usages: Sequence[Usage]) -> list[Cost]:
        """Return what each of a release's pods costs.

        A node with an accelerator is paid as a whole, by the release's pods that asked for the
        accelerator: the others on it cost nothing more.
        """
        accelerators: dict[str, float] = defaultdict(float)
        for usage in usages:
            if usage.node_cpus and usage.accelerators:
                accelerators[usage.node] += usage.accelerators
        return [
            self.cost(usage, accelerators.get(usage.node, 0.0))
            if usage.accelerators or usage.node not in accelerators
            else Cost.exactly(0.0)
            for usage in usages
        ]

    def cost(self, usage: Usage, on_node: float = 0.0) -> Cost:
        """Return what one pod costs.

        Args:
            usage: The pod.
            on_node: Accelerators of all the release's pods on its node; default: its own.
        """
        cost = self._cost(usage, on_node, self.tier(usage))
        if usage.spot is not None and not usage.flex:
            return cost
        either = [*self._cost(usage, on_node, "spot"), *self._cost(usage, on_node, "on-demand")]
        return Cost(cost.charged, min(either), max(either))

    def dollars_per_hour(self, usage: Usage) -> float:
        """Return what is charged for one pod."""
        return self.cost(usage).charged

    def tier(self, usage: Usage) -> Tier:
        """Return the pod's tier, or the default where the tier is unknown."""
        if usage.spot is None:
            return self.settings.defaultTier
        return "spot" if usage.spot else "on-demand"

    def volume(self, storage_class: str, gib: float) -> float:
        """Return the US dollars an hour of a volume."""
        if not self.volumes:
            return 0.0
        if storage_class not in self.volumes:
            self._note("storage class", storage_class or "(the cluster's default)", self.volumes)
        month = self.volumes.get(storage_class, max(self.volumes.values()))
        return month * gib / MONTH_HOURS

    def _cost(self, usage: Usage, on_node: float, tier: Tier) -> Cost:
        if not usage.accelerators:
            return self._requests(usage, tier)
        if usage.node_cpus and usage.node_accelerators:
            return self._node(usage, on_node or usage.accelerators, tier)
        return self._accelerated(usage, tier)

    def _requests(self, usage: Usage, tier: Tier, family: str = "") -> Cost:
        """Price CPU and memory by the request."""
        size = usage.cpus, usage.memory_gib, tier
        name = usage.family or family or self.settings.defaultFamily
        if name in self.families:
            return Cost.exactly(self.families[name].hour(*size))
        self._note("machine family", name, self.families)
        every = [row.hour(*size) for row in self.families.values()]
        return Cost(max(every), min(every), max(every))

    def _node(self, usage: Usage, on_node: float, tier: Tier) -> Cost:
        """Price a pod's part of its whole node."""
        row = self.machines.get(usage.machine)
        if row is not None:
            whole = _machine(row, tier)
        else:
            machine = replace(
                usage,
                cpus=usage.node_cpus,
                memory_gib=usage.node_memory_gib,
                accelerators=usage.node_accelerators,
            )
            whole = self._accelerated(machine, tier, in_machines=False)
        mine = usage.accelerators / on_node
        asked = min(1.0, usage.accelerators / usage.node_accelerators)
        # Pods of others may have the rest of the node; of a divided GPU they most likely do.
        charged = asked if usage.parts > 1 else mine
        return Cost(whole.charged * charged, whole.lower * asked, whole.upper * mine)

    def _accelerated(self, usage: Usage, tier: Tier, in_machines: bool = True) -> Cost:
        """Price an accelerator with what is around it, on a machine that is not known."""
        kind = "tpu" if usage.is_tpu else "nvidia"
        names = [*self.accelerators, *(row.accelerator for row in self.machines.values())]
        names = [name for name in names if name.startswith(kind)] or list(self.accelerators)
        if usage.accelerator in names:
            return self._named(usage.accelerator, usage, tier, in_machines)
        self._note("accelerator", usage.accelerator or f"without a name ({kind})", names)
        every = [self._named(name, usage, tier, in_machines, whole=False) for name in names]
        # A new accelerator may cost more than all that are known.
        upper = math.inf if len(names) > 1 else every[0].upper
        return Cost(max(cost.charged for cost in every), min(cost.lower for cost in every), upper)

    def _named(
        self, name: str, usage: Usage, tier: Tier, in_machines: bool, whole: bool = True
    ) -> Cost:
        """Price by the smallest machine that has the accelerators; without one, by the piece."""
        devices = usage.accelerators / usage.parts
        rows = [row for row in self.machines.values() if row.accelerator == name]
        fitting = [row for row in rows if _fits(row, usage, devices)] if in_machines else []
        if fitting or name not in self.accelerators:
            smallest = min(fitting or rows, key=lambda row: _machine(row, tier).charged)
            count = 1 if fitting else math.ceil(devices / smallest.count)
            part = count if whole and usage.parts == 1 else devices / smallest.count
            price = _machine(smallest, tier).part(part)
            return price._replace(
                upper=max(price.upper, *(_machine(row, tier).upper for row in rows))
            )
        accelerator = self.accelerators[name]
        price = Cost.exactly(devices * accelerator.hour(tier))
        if accelerator.host_included:
            return price
        host = self._requests(usage, tier, accelerator.family)
        return Cost(*(one + other for one, other in zip(price, host, strict=True)))

    def _note(self, what: str, name: str, rows: Collection[str]) -> None:
        # A table of one price, as the paper's, prices everything.
        if len(rows) > 1:
            self.unknown.add(f"{what} {name}")


def _machine(row: Machine, tier: Tier) -> Cost:
    price = row.hour(tier)
    return Cost(price, price, max(price, row.highest if tier == "on-demand" else 0.0))


def _fits(row: Machine, usage: Usage, devices: float) -> bool:
    return row.count >= devices and row.cpus >= usage.cpus and row.memory_gib >= usage.memory_gib
