"""`memory`: what an environment's slot costs the learner."""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from bench.child import Child
from bench.plan import Plan, write_pong
from bench.report import Case, Table
from bench.sides import address_of, clients, null_learner

MAX_GROUP = 32


def _rows(part: Case) -> Iterable[Case]:
    """Yield what was measured, and the figure."""
    measured, total, unroll, tables = (
        part[name] / 2**10
        for name in (
            "bytes_a_slot", "computed_bytes_a_slot", "computed_unroll_bytes", "computed_table_bytes"
        )
    )  # fmt: skip
    yield {"what": "a slot, measured", "figure": f"{measured:.0f} KiB"}
    parts = f"{total:.0f} KiB: unroll {unroll:.0f}, device tables {tables:.0f}"
    yield {"what": "a slot, computed", "figure": parts}


TABLES = [Table("memory", "what | figure", "{what} | {figure}", _rows)]


def memory(plan: Plan) -> dict[str, Any]:
    """Measure and compute the bytes of a slot.

    Two learners have as many slots as environments, and differ in their resident bytes. Each has
    the device tables of production, and sessions that have filled more than an unroll. The policy
    has no model, since its activations do not depend on the number of slots.
    """
    few, many = plan.pick((64, 1024), (8, 64))
    with ExitStack() as stack:
        pairs = [_learner(plan, slots, stack) for slots in (few, many)]
        for _, streams in pairs:
            streams.ask("play", steps=2 * plan.unroll_length + 2)
        resident = [learner.ask("usage")["rss"] for learner, _ in pairs]
        computed = pairs[0][0].ask("slot_bytes")
    return {
        "slots": [few, many],
        "rss_bytes": resident,
        "bytes_a_slot": (resident[1] - resident[0]) / (many - few),
        **computed,
        "computed_bytes_a_slot": sum(computed.values()),
    }


def _learner(plan: Plan, slots: int, stack: ExitStack) -> tuple[Child, Child]:
    """Start a learner of so many slots, and clients that take them all."""
    group, name = min(MAX_GROUP, slots // 2), f"memory-{slots}"
    inference = f"{{slots: {slots}, max_batch_envs: {group}}}"
    path = write_pong(plan, name, group, network="nature", inference=inference)
    address = address_of("", plan.folder, name)
    learner = stack.enter_context(null_learner(plan, path, name, address, tables=True))
    return learner, stack.enter_context(clients(plan, path, name, address, slots // group, group))
