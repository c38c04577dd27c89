"""`memory`: what an environment's slot costs the learner, and whether a long run grows."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from bench.child import Child
from bench.figures import slope
from bench.plan import Plan, pong
from bench.training_run import TrainingRun

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
        answers = [(learner.hello, _play(plan, learner, clients)) for learner, clients in pairs]
    hello = answers[0][0]
    resident = [rss for _, rss in answers]
    return {
        "slots": [few, many],
        "rss_bytes": resident,
        "bytes_a_slot": (resident[1] - resident[0]) / (many - few),
        "computed_unroll_bytes": hello["unroll_bytes"],
        "computed_table_bytes": hello["table_bytes"],
        "computed_bytes_a_slot": hello["unroll_bytes"] + hello["table_bytes"],
    }


def _learner(plan: Plan, slots: int, stack: ExitStack) -> tuple[Child, Child]:
    """A learner of so many slots, and clients that take them all."""
    group = min(MAX_GROUP, slots // 2)
    path = plan.folder / f"memory-{slots}.yaml"
    inference = f"{{slots: {slots}, max_batch_envs: {group}}}"
    path.write_text(pong(replace(plan, environments=group), network="nature", inference=inference))
    address = f"unix:{plan.folder / f'memory-{slots}.sock'}"
    learner = Child(
        "null_learner", plan.folder, str(path), address, "--tables", name=f"memory-{slots}"
    )
    stack.enter_context(learner)
    clients = Child(
        "stream_clients", plan.folder, str(path), address, str(slots // group), str(group),
        name=f"memory-clients-{slots}",
    )  # fmt: skip
    stack.enter_context(clients)
    return learner, clients


def _play(plan: Plan, learner: Child, clients: Child) -> int:
    """Resident bytes of a learner whose sessions have filled more than an unroll."""
    clients.ask("play", steps=2 * plan.unroll_length + 2)
    rss: int = learner.ask("usage")["rss"]
    return rss


def _growth(plan: Plan) -> dict[str, Any]:
    """Resident bytes of a training run, sampled after it has warmed up."""
    path = plan.folder / "growth.yaml"
    path.write_text(pong(plan, network="nature"))
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
