"""Part `replay` of the benchmark: each measurement in a process of its own."""

import importlib.util
import logging
from typing import Any

from bench.child import Child
from bench.plan import Plan
from bench.replay.learners import learners

log = logging.getLogger(__name__)

LONGEST_S = 1800.0
SHARDS = (
    ("sequences", "files"),
    ("sequences", "memory"),
    ("sequences, stack 1", "files"),
    ("transitions", "memory"),
)


def replay(plan: Plan) -> dict[str, Any]:
    """Measure storages, shards, several learners of one, and the training step."""
    backend = "tensorflow" if importlib.util.find_spec("tensorflow") else "jax"
    of_backend: dict[str, Any] = {
        "backend": backend,
        "runs": plan.runs,
        "window_s": plan.replay_window_s,
    }
    sequences, transitions = plan.replay_sequences, plan.replay_transitions
    log.info("replay: storages")
    with Child(
        "replay.storages:Storages", plan.folder, "storages", sequences=sequences, **of_backend
    ) as child:
        homes = {home: child.ask(home, LONGEST_S) for home in ("host", "device")}
    log.info("replay: shards")
    with Child(
        "replay.service:Shards", plan.folder, "shards",
        sequences=sequences, rounds=plan.replay_rounds, runs=plan.runs,
    ) as child:  # fmt: skip
        cases = [
            child.ask("measure", LONGEST_S, content=content, kept_in=kept_in, way=way)
            for content, kept_in in SHARDS
            for way in ("shared memory", "tcp")
        ]
    log.info("replay: several learners, and prefetch")
    several = learners(plan)
    log.info("replay: the training step")
    with Child(
        "replay.training:Training", plan.folder, "training", transitions=transitions, **of_backend
    ) as child:
        steps = [child.ask("steps", LONGEST_S, batch_size=size) for size in plan.replay_batches]
        insertion = child.ask("insertion", LONGEST_S, sizes=plan.replay_sizes)
    return {
        "backend": backend,
        "homes": homes,
        "service": {"cases": cases},
        "learners": several,
        "training": {
            "backend": backend,
            "device": homes["device"]["device"],
            "transitions": transitions,
            "steps": steps,
            "insertion": insertion,
        },
    }
