"""What a run costs: prices of the experiment times what it occupies on this machine."""

from __future__ import annotations

from seedbed.config.run import Cost
from seedbed.runtime.limits import usable_cpus, usable_memory_bytes


def dollars_per_hour(
    cost: Cost, cpus: float | None = None, memory_bytes: int | None = None
) -> float:
    """US dollars an hour of what `cost` charges.

    `cpus` and `memory_bytes` are what the machine has, charged where the experiment says 0; by
    default this machine's, as far as this process may use it.
    """
    if cpus is None:
        cpus = usable_cpus()
    if memory_bytes is None:
        memory_bytes = usable_memory_bytes()
    return (
        cost.cpu_hour * (cost.cpus or cpus)
        + cost.memory_gib_hour * (cost.memory_gib or memory_bytes / 2**30)
        + cost.accelerator_hour * cost.accelerators
    )


def dollars_per_billion_frames(dollars: float, frames: int) -> float | None:
    """What a billion frames cost at the run's price so far; None before the first frame."""
    return dollars / frames * 1e9 if frames else None
