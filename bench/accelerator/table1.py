"""Table 1 of the SEED paper beside what was measured, and dollars for a billion frames."""

from typing import Any, NamedTuple

from seedbed.papers import seed_tables
from seedbed.papers.printed import value_of
from seedbed.papers.seed_tables import RATES, TPU_V3
from seedbed.services.cost.price_table import tables


class PaperRow(NamedTuple):
    """A row of Table 1, as the paper states it."""

    architecture: str
    accelerators: str
    environments: int
    actor_cpus: int
    batch_size: int
    frames_per_s: float


# Arcade Learning Environment, R2D2's network, 84 x 84, on TPUs. DeepMind Lab and Football are other
# environments, with which our frames cannot be compared.
ATARI = tuple(
    PaperRow(
        ", ".join(filter(None, (row.setup.name, row.note))),
        row.setup.accelerators,
        row.setup.envs,
        row.setup.cpus or 0,
        row.batch_size,
        value_of(row.setup.speed) or 0.0,
    )
    for row in RATES
    if (row.setup.environment, row.setup.accelerator) == (seed_tables.ATARI, TPU_V3)
)


def compare(results: dict[str, Any]) -> dict[str, Any]:
    """Return every end to end rate beside the paper's row, and what a billion frames cost.

    Args:
        results: Of the measurement, with `machine_type`.
    """
    (row, *_) = ATARI
    facts = results["parts"].get("doctor", {}).get("machine", {})
    used = sum(not kind.startswith("cpu") for kind in facts.get("kinds", []))
    dollars, source = price(results.get("machine_type"), used)
    cases = {}
    for name, case in results["parts"].get("end_to_end", {}).items():
        rate = case["env_frames_per_s"]
        cases[name] = {
            "environments": case["environments"],
            "env_frames_per_s": rate,
            "of_paper": rate / row.frames_per_s if case["agent"] == "r2d2" else None,
            "dollars_a_billion_frames": (
                dollars * 1e9 / rate / 3600 if dollars is not None and rate else None
            ),
        }
    return {
        "paper": row._asdict(),
        "dollars_an_hour": dollars,
        "price_source": source,
        "cases": cases,
    }


def price(machine_type: str | None, used: int) -> tuple[float | None, str]:
    """Return US dollars an hour on demand, and where they are from.

    Args:
        machine_type: Key of the price tables' machines.
        used: Accelerators of this machine, which may have been given a part of a larger one.
    """
    if not machine_type:
        return None, "unknown: --machine was not given"
    for name, table in tables().items():
        row = table.machines.get(machine_type)
        if row is not None:
            part = min(1.0, used / row.count) if used else 1.0
            return part * row.on_demand, f"{part:g} of {machine_type}, {name}, {table.date}"
    return None, f"unknown: no price table has a machine {machine_type}"
