"""`memory`: what an environment's slot costs the learner, and whether a long run grows."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from bench.child import Child
from bench.command import TrainingRun
from bench.figures import slope
from bench.plan import Plan, write_pong
from bench.report import Case, Table
from bench.sides import address_of, clients, null_learner

SAMPLE_S = 1.0
MAX_GROUP = 32


def _rows(part: Case) -> Iterable[Case]:
    """Yield what was measured, and the figure."""
    slot, growth = part["slot"], part["growth"]
    measured, total, unroll, tables = (
        slot[name] / 2**10
        for name in (
            "bytes_a_slot", "computed_bytes_a_slot", "computed_unroll_bytes", "computed_table_bytes"
        )
    )  # fmt: skip
    yield {"what": "a slot, measured", "figure": f"{measured:.0f} KiB"}
    parts = f"{total:.0f} KiB: unroll {unroll:.0f}, device tables {tables:.0f}"
    yield {"what": "a slot, computed", "figure": parts}
    for who in ("learner", "actors"):
        now, since, slope_of = (
            growth[f"{who}_{name}"] / 2**20
            for name in ("rss_bytes", "rss_growth_bytes", "bytes_a_million_frames")
        )
        yield {
            "what": f"{who}, resident after {growth['env_frames'] / 1e6:.2f} M frames",
            "figure": f"{now:.0f} MiB, {since:+.1f} MiB since warm, "
            f"{slope_of:+.1f} MiB a million frames",
        }


TABLES = [Table("memory", "what | figure", "{what} | {figure}", _rows)]


def memory(plan: Plan) -> dict[str, Any]:
    """Bytes a slot, measured and computed; growth of a training run."""
    return {"slot": _slot(plan), "growth": _growth(plan)}


def _slot(plan: Plan) -> dict[str, Any]:
    """From two learners with as many slots as environments: the difference in resident bytes.

    Each has the device tables of production, and sessions that have filled more than an unroll.
    The policy has no model, since its activations do not depend on the number of slots.
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


def _growth(plan: Plan) -> dict[str, Any]:
    """Resident bytes of a training run, sampled after it has warmed up."""
    path, growth_s = write_pong(plan, "growth", network="nature"), plan.pick(60.0, 3.0, "growth_s")
    samples: list[tuple[float, dict[str, int]]] = []
    with TrainingRun(path, plan.folder / "growth") as training:
        training.wait_for_updates(3)
        time.sleep(plan.training_warm_up_s)
        end = time.monotonic() + growth_s
        while time.monotonic() < end:
            status = training.status()
            samples.append((status["counters"]["env_frames"] / 1e6, status["rss"]))
            time.sleep(SAMPLE_S)
    frames = [frame for frame, _ in samples]
    return {
        "seconds": growth_s,
        "env_frames": 1e6 * (frames[-1] - frames[0]),
        **{
            f"{who}_{what}": value
            for who in ("learner", "actors")
            for what, value in {
                "rss_bytes": samples[-1][1][who],
                "rss_growth_bytes": samples[-1][1][who] - samples[0][1][who],
                "bytes_a_million_frames": slope(frames, [rss[who] for _, rss in samples]),
            }.items()
        },
    }
