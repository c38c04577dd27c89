"""Part `replay` of the benchmark: each measurement in a process of its own."""

import importlib.util
import logging
from typing import Any

from bench.child import Child
from bench.plan import Plan
from bench.replay.learners import learners
from bench.report import Table, named

log = logging.getLogger(__name__)

LONGEST_S = 1800.0
STEP_HEAD = (
    "batch | RAM, copied each step: ms | RAM, prefetched: ms | device, fused: ms | "
    "faster than copied: % | than prefetched: % | paper: %"
)
STEP_CELLS = (
    "{batch_size} | {host_ms:,.2f} | {prefetched_ms:,.2f} | {device_ms:,.2f} | "
    "{speedup_percent:,.0f} | {speedup_percent_over_prefetched:,.0f} | {paper_percent:.1f}"
)
INSERTION_HEAD = "at a time | RAM: µs | device: µs"
INSERTION_CELLS = "{at_a_time:,} | {host_us:,.2f} | {device_us:,.2f}"
SHARDS = (
    ("sequences", "files"),
    ("sequences", "memory"),
    ("sequences, stack 1", "files"),
    ("transitions", "memory"),
)

TABLES = [
    Table(
        "replay within the learner ({backend}, device {homes[device][device]}; sequences of "
        "40 + 80 steps of 84 x 84, batches of 64)",
        "storage | inserted/s | of a copy | drawn/s | of a copy | priorities/s",
        "{name} | {insert_sequences_per_s:,.0f} | {insert_of_copy:,.2f} | "
        "{sample_sequences_per_s:,.0f} | {sample_of_copy:,.2f} | {priorities_per_s:,.0f}",
        lambda part: named(part["homes"]),
    ),
    Table(
        "replay shard (two processes; beside gRPC streams of as many bytes, over a unix socket "
        "or TCP)",
        "way | content | kept in | inserted/s | of a bare stream | drawn/s | of a bare stream | "
        "goal | priorities/s",
        "{way} | {content} | {kept_in} | {insert_sequences_per_s:,.0f} | "
        "{insert_of_bare_stream:,.2f} | {sample_sequences_per_s:,.0f} | "
        "{sample_of_bare_stream:,.2f} | 0.80 | {priorities_per_s:,.0f}",
        lambda part: part["service"]["cases"],
    ),
    Table(
        "sequences that several learners draw from one shard (in memory), each a process with "
        "two batches of 64 under way",
        "way | learners | drawn/s, together | MB/s | least and most of a learner",
        "{way} | {learners} | {drawn_per_s:,.0f} | {drawn_mb_per_s:,.0f} | "
        "{least[median]:.2f} to {most[median]:.2f}",
        lambda part: part["learners"]["sampling"],
    ),
    Table(
        "an update that takes an accelerator {learners[prefetch][0][update_s]} s (a stand-in, "
        "which sleeps), batch and priorities included",
        "way | nothing ahead: s | two batches ahead: s | of the way hidden",
        "{way} | {without_s:.3f} | {prefetched_s:.3f} | {hidden:.2f}",
        lambda part: part["learners"]["prefetch"],
    ),
    Table(
        "training step, {training[transitions]:,} transitions of 57 floats ({training[device]})",
        STEP_HEAD,
        STEP_CELLS,
        lambda part: part["training"]["steps"],
    ),
    Table(
        "insertion of a transition (paper: {training[insertion][paper_us][ram]} µs in RAM, "
        "{training[insertion][paper_us][gpu]} µs on the GPU, 2,000 at a time)",
        INSERTION_HEAD,
        INSERTION_CELLS,
        lambda part: part["training"]["insertion"]["cases"],
    ),
]


def replay(plan: Plan) -> dict[str, Any]:
    """Measure storages, shards, several learners of one, and the training step."""
    backend = "tensorflow" if importlib.util.find_spec("tensorflow") else "jax"
    of_backend: dict[str, Any] = {
        "backend": backend,
        "runs": plan.runs,
        "window_s": plan.pick(1.5, 0.1),
    }
    sequences, transitions = plan.pick((1024, 1_000_000), (128, 4000))
    log.info("replay: storages")
    with Child(
        "replay.storages:Storages", plan.folder, "storages", sequences=sequences, **of_backend
    ) as child:
        homes = {home: child.ask(home, LONGEST_S) for home in ("host", "device")}
    log.info("replay: shards")
    with Child(
        "replay.service:Shards", plan.folder, "shards",
        sequences=sequences, rounds=plan.pick(12, 2), runs=plan.runs,
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
        batches, sizes = plan.pick(
            ((16, 32, 64, 128, 256), (1, 10, 100, 500, 2000, 10000)), ((16,), (1, 100))
        )
        steps = [child.ask("steps", LONGEST_S, batch_size=size) for size in batches]
        insertion = child.ask("insertion", LONGEST_S, sizes=sizes)
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
