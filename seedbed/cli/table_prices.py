"""Prices of actors and of a learner from a price table, for `seedbed table`."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import ValidationError

from seedbed.papers.seed_costs import DEVICE_PRICES, Dollars
from seedbed.papers.seed_tables import Setup
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

Tier: TypeAlias = Literal["on-demand", "spot"]
# Of the CPU core of Table 3, whose price is that of an n1 vCPU with so much memory.
GIB_A_CPU = 3.75
PAPER, NEWEST = "sep-2019", "us-central1-aug-2026"


@dataclass(frozen=True)
class Actors:
    """`--actors`: which CPUs the actors are priced on.

    Attributes:
        cpus: Number of vCPUs; 0 is the row's own.
        family: Machine family.
        tier: Spot or on demand.
        cpu_hour: US dollars an hour of a vCPU with 3.75 GiB of memory.
    """

    cpus: float
    family: str
    tier: Tier
    cpu_hour: float

    def __str__(self) -> str:
        number = f"{self.cpus:g} x " if self.cpus else ""
        return f"{number}{self.family} {self.tier}, ${self.cpu_hour:.4f} a CPU hour"


@dataclass(frozen=True)
class Learner:
    """`--learner`: which machine or accelerators the learner is priced on.

    Attributes:
        name: What it is, in the words of the price table.
        tier: Spot or on demand.
        hour: US dollars an hour of all of it.
    """

    name: str
    tier: Tier
    hour: float

    def __str__(self) -> str:
        return f"{self.name} {self.tier}, ${self.hour:.4g} an hour"


class PriceTags:
    """A price table, asked as `seedbed table` asks.

    Attributes:
        name: Name of the table, or of its file.
        table: Its rows.
    """

    def __init__(self, name: str) -> None:
        """Look the table up, or read it.

        Args:
            name: Of a table that ships, or a YAML file in the form of one table of
                services/cost/prices.yaml.

        Raises:
            SeedbedError: USAGE, there is no such table, or it does not fit.
        """
        from seedbed.services.cost.price_table import Table, tables

        shipped = tables()
        self.name = name
        if name in shipped:
            self.table = shipped[name]
            return
        path = Path(name)
        if path.suffix not in (".yaml", ".yml"):
            raise unknown("price table", name, shipped, "(a YAML file of your own does, too)")
        try:
            self.table = Table.model_validate(yaml.safe_load(path.read_text()))
        except (OSError, yaml.YAMLError, ValidationError) as error:
            raise SeedbedError(
                ExitCode.USAGE, f"--prices: cannot read {path} as a price table: {error}"
            ) from error

    def __str__(self) -> str:
        return f"{self.name}, of {self.table.date}"

    def cpu_hour(self, family: str, tier: Tier = "on-demand") -> float:
        """Return the US dollars an hour of a vCPU with 3.75 GiB, as the paper's CPU core is.

        Raises:
            SeedbedError: USAGE, the table has no such family, or no Spot price.
        """
        row = self.table.families.get(family)
        if row is None:
            raise unknown("machine family", family, self.table.families, f"in {self.name}")
        price = row.hour(1, GIB_A_CPU, tier)
        if tier == "spot":
            self._check_spot(price, row.hour(1, GIB_A_CPU, "on-demand"), family)
        return price

    def device_hour(self, accelerator: str, tier: Tier = "on-demand") -> float | None:
        """Return the US dollars an hour of one GPU or TPU chip alone.

        Args:
            accelerator: Key of the table's accelerators; without a row there is no price.
            tier: Spot or on demand.
        """
        row = self.table.accelerators.get(accelerator)
        if row is None or (tier == "spot" and row.spot >= row.on_demand):
            return None
        return row.hour(tier)

    def own_hourly(self, setup: Setup) -> Dollars:
        """Return the US dollars an hour of a row of the paper on its own hardware.

        Where the table lacks the accelerator, as it was not sold any more, Table 3's price counts.

        Args:
            setup: The row; a part without a price or CPUs is None.
        """
        device = self.device_hour(setup.accelerator)
        device = DEVICE_PRICES.get(setup.accelerator) if device is None else device
        return Dollars(
            None if setup.cpus is None else setup.cpus * self.cpu_hour(self.default_family),
            None if device is None else setup.devices * device,
        )

    @property
    def default_family(self) -> str:
        """The family of the paper's core, n1; without it the table's first."""
        families = self.table.families
        return "n1" if "n1" in families else next(iter(families))

    def actors(self, text: str) -> Actors:
        """Read `--actors`: a number of CPUs, a machine family and a tier, each of them or not.

        Args:
            text: Such as "spot", "64,n2d,spot" or "c3".

        Raises:
            SeedbedError: USAGE, a word is none of them.
        """
        cpus, family, tier = 0.0, self.default_family, "on-demand"
        seen: set[str] = set()
        for word in text.split(","):
            if word in ("spot", "on-demand"):
                tier, kind = word, "tiers"
            elif word.replace(".", "", 1).isdigit() and float(word) > 0:
                cpus, kind = float(word), "numbers of CPUs"
            elif word in self.table.families:
                family, kind = word, "machine families"
            else:
                raise unknown(
                    "machine family", word, [*self.table.families, "spot", "on-demand"],
                    f"in {self.name}; --actors takes a number of CPUs, a family and a tier, such "
                    "as 64,n2d,spot",
                )  # fmt: skip
            if kind in seen:
                raise SeedbedError(ExitCode.USAGE, f"--actors {text}: two {kind}; name one")
            seen.add(kind)
        of_tier: Tier = "spot" if tier == "spot" else "on-demand"
        return Actors(cpus, family, of_tier, self.cpu_hour(family, of_tier))

    def learner(self, text: str) -> Learner:
        """Read `--learner`: a machine type, or a number of accelerators, and a tier.

        An accelerator is priced by the smallest machine that has so many, and where the table has
        none, alone, as in the paper.

        Args:
            text: Such as "l4", "2xl4,spot", "g2-standard-8" or "4xtpu-v6e-slice".

        Raises:
            SeedbedError: USAGE, the table has no such accelerator or machine.
        """
        word, _, tier_text = text.partition(",")
        if tier_text not in ("", "spot", "on-demand"):
            raise SeedbedError(
                ExitCode.USAGE, f"--learner {text}: {tier_text!r} is no tier: spot or on-demand"
            )
        tier: Tier = "spot" if tier_text == "spot" else "on-demand"
        number, _, rest = word.partition("x")
        count, name = (int(number), rest) if number.isdigit() and rest else (1, word)
        if not count:
            raise SeedbedError(ExitCode.USAGE, f"--learner {text}: 0 of {name}; name at least 1")
        row: Any
        if name in self.table.machines:
            label, row, units = f"{count} x {name}", self.table.machines[name], count
        else:
            label, row, units = self._devices(self._accelerator(name), count)
        if tier == "spot":
            self._check_spot(row.spot, row.on_demand, name)
        return Learner(label, tier, units * row.hour(tier))

    def _devices(self, accelerator: str, count: int) -> tuple[str, Any, int]:
        """Return accelerators in words, the row that prices them, and how many of it."""
        machines = self.table.machines
        having = {name for name, row in machines.items() if row.accelerator == accelerator}
        if not having:
            device = self.table.accelerators[accelerator]
            alone = "" if device.host_included else " without a host"
            return f"{count} x {accelerator}{alone}", device, count
        fitting = [name for name in having if machines[name].count >= count]
        if not fitting:
            most = max(machines[name].count for name in having)
            raise SeedbedError(
                ExitCode.USAGE,
                f"--learner: no machine of {self.name} has {count} x {accelerator}, the largest "
                f"has {most:g}: ask for fewer, or for machines, such as 2x{max(having)}",
            )
        name = min(fitting, key=lambda one: machines[one].on_demand)
        row = machines[name]
        whole = f", which has {row.count:g}" if row.count != count else ""
        return f"{count} x {accelerator} ({name}{whole})", row, 1

    def _accelerator(self, word: str) -> str:
        """Return the accelerator with a name, or with a part between its hyphens, such as l4."""
        of_machines = dict.fromkeys(row.accelerator for row in self.table.machines.values())
        names = list(dict.fromkeys([*self.table.accelerators, *of_machines]))
        if word in names:
            return word
        found = [name for name in names if f"-{word}-" in f"-{name}-"]
        found = [name for name in found if name in self.table.accelerators] or found
        if len(found) == 1:
            return found[0]
        if found:
            raise SeedbedError(
                ExitCode.USAGE, f"--learner {word} is ambiguous in {self.name}: {', '.join(found)}"
            )
        raise unknown("accelerator or machine type", word, names, f"in {self.name}")

    def _check_spot(self, spot: float, on_demand: float, name: str) -> None:
        if spot >= on_demand > 0:
            raise SeedbedError(
                ExitCode.USAGE,
                f"{self.name} has no Spot price of {name}: take another table, such as "
                f"--prices {NEWEST}",
            )


def unknown(what: str, word: str, known: Iterable[str], where: str) -> SeedbedError:
    """Return the error of a word that is not known, with what may be meant."""
    names = list(known)
    near = get_close_matches(word, names, 2, 0.5)
    near = near or [name for name in names if word and word in name][:3]
    meant = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(names)}"
    return SeedbedError(ExitCode.USAGE, f"there is no {what} {word!r} {where}: {meant}")
