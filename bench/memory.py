"""`memory`: what an environment's slot costs the learner, and whether a long run grows."""

import time
from contextlib import ExitStack
from typing import Any

from bench.child import Child
from bench.command import TrainingRun
from bench.figures import slope
from bench.plan import Plan, write_pong

SAMPLE_S = 1.0
MAX_GROUP = 32


def memory(plan: Plan) -> dict[str, Any]:
    """Bytes a slot, measured and computed; growth of a training run."""
    return {"slot": _slot(plan), "growth": _growth(plan)}


def _slot(plan: Plan) -> dict[str, Any]:
    """From two learners with as many slots as environments: the difference in resident bytes.

    Each has the device tables of production, and sessions that have filled more than an unroll.
    The policy has no model, since its activations do not depend on the number of slots.
    """
    few, many = plan.slots
    with ExitStack() as stack:
        pairs = [_learner(plan, slots, stack) for slots in plan.slots]
        for _, clients in pairs:
            clients.ask("play", steps=2 * plan.unroll_length + 2)
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
    group = min(MAX_GROUP, slots // 2)
    inference = f"{{slots: {slots}, max_batch_envs: {group}}}"
    path = write_pong(plan, f"memory-{slots}", group, network="nature", inference=inference)
    address = f"unix:{plan.folder / f'memory-{slots}.sock'}"
    learner = Child(
        "null_learner:NullLearner", plan.folder, f"memory-{slots}",
        path=path, listen=address, tables=True,
    )  # fmt: skip
    stack.enter_context(learner)
    clients = Child(
        "stream_clients:Clients", plan.folder, f"memory-clients-{slots}",
        experiment=path, address=address, streams=slots // group, num_envs=group,
    )  # fmt: skip
    return learner, stack.enter_context(clients)


def _growth(plan: Plan) -> dict[str, Any]:
    """Resident bytes of a training run, sampled after it has warmed up."""
    path = write_pong(plan, "growth", network="nature")
    samples: list[tuple[float, dict[str, int]]] = []
    with TrainingRun(path, plan.folder / "growth") as training:
        training.wait_for_updates(3)
        time.sleep(plan.system_warm_up_s)
        end = time.monotonic() + plan.growth_s
        while time.monotonic() < end:
            status = training.status()
            samples.append((status["counters"]["env_frames"] / 1e6, status["rss"]))
            time.sleep(SAMPLE_S)
    frames = [frame for frame, _ in samples]
    return {
        "seconds": plan.growth_s,
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
