"""`growth`: what a step, an unroll, a sequence and a learner cost as their numbers grow."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.figures import slope
from bench.plan import Plan, write_pong
from bench.replay.content import chunk_of
from bench.report import Case, Table
from bench.sides import address_of, clients, null_learner
from seedbed.config.gossip import Gossip
from seedbed.gossip.membership import Membership
from seedbed.gossip.topology import make_topology
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.sequence import SequenceSpec
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.spec import ArraySpec

LARGEST_GROUP = 64
# Time of each figure that is measured in this process.
SECONDS = 0.3
BATCH = 64


def _lines(result: Case) -> Iterable[Case]:
    """Yield the rows, with sizes and costs as texts."""
    for row in result["cases"]:
        sizes = ", ".join(f"{size:,}" for size in row["sizes"])
        costs = (f"{cost:,.3g}" if cost < 1000 else f"{cost:,.0f}" for cost in row["costs"])
        yield {**row, "sizes": sizes, "costs": ", ".join(costs)}


TABLES = [
    Table(
        "cost of a unit, at each size",
        "what | as these grow | costs | exponent",
        "{what} | {sizes_are}: {sizes} | {costs} | {exponent:+.2f}",
        _lines,
    )
]


def growth(plan: Plan) -> dict[str, Any]:
    """Measure each part at each of its sizes, and fit the power with which a unit's cost grows.

    0 is a cost that grows in proportion to the size; 1 would be a square.
    """
    unrolls = plan.pick((1, 4, 16, 64), (1, 4))
    learners = plan.pick((2, 4, 8, 16, 32, 64), (2, 4))
    rows = [
        *_environments(plan, plan.pick((2, 32, 256, 2048, 12480), (2, 8))),
        _fitted("an unroll put and taken, µs", "unrolls queued", unrolls, map(_queue, unrolls)),
        *_replay(plan.pick((1000, 10_000, 100_000, 1_000_000), (100, 1000))),
        _fitted("graph and peers of an update, µs", "learners", learners, map(_gossip, learners)),
    ]
    return {"cases": rows}


def _fitted(
    what: str, sizes_are: str, sizes: Sequence[int], each: Iterable[float]
) -> dict[str, Any]:
    costs = list(each)
    x, y = [math.log(size) for size in sizes], [math.log(max(cost, 1e-9)) for cost in costs]
    return {
        "what": what,
        "sizes_are": sizes_are,
        "sizes": list(sizes),
        "costs": costs,
        "exponent": slope(x, y),
    }


def _per_call_us(call: Callable[[], object]) -> float:
    """Return the smallest CPU time of a call in several turns."""
    best, number = math.inf, 1
    deadline = time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        started = time.thread_time()
        for _ in range(number):
            call()
        used = time.thread_time() - started
        best = min(best, used / number)
        if used < 0.01:
            number *= 2
    return 1e6 * best


def _environments(plan: Plan, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Play in groups of at most 64 with a learner whose policy has no model."""
    cpu_us, size_bytes = [], []
    for number in sizes:
        group = max(1, min(LARGEST_GROUP, number // 2))
        name = f"growth-{number}"
        inference = f"{{slots: {max(64, number)}, max_batch_envs: {max(group, number // 2)}}}"
        path = write_pong(plan, name, group, inference=inference)
        address = address_of("", plan.folder, name)
        with (
            null_learner(plan, path, name, address) as learner,
            clients(plan, path, name, address, number // group, group) as streams,
        ):
            empty = learner.ask("usage")["rss"]
            streams.ask("play", steps=2 * plan.unroll_length + 2, deadline_s=600.0)
            before = learner.ask("usage")
            answered = streams.ask("measure", seconds=plan.window_s, deadline_s=600.0)
            after = learner.ask("usage")
        steps = answered["messages"] * group
        cpu_us.append(1e6 * (after["cpu_s"] - before["cpu_s"]) / steps)
        size_bytes.append(max(1.0, (after["rss"] - empty) / number))
    return [
        _fitted("a step, µs of the learner", "environments", sizes, cpu_us),
        _fitted("an environment, bytes of the learner", "environments", sizes, size_bytes),
    ]


def _queue(waiting: int) -> float:
    queue = UnrollQueue(10**9)
    unroll: Any = SimpleNamespace(steps=1, environments=1)
    for _ in range(waiting):
        queue.try_put(unroll)

    def turn() -> None:
        queue.try_put(unroll)
        queue.get(0)

    return _per_call_us(turn)


def _replay(sizes: Sequence[int]) -> list[dict[str, Any]]:
    spec = SequenceSpec(ArraySpec((4,), "float32"), steps=5, burn_in=0, frame_stack=1, state_size=0)
    random = np.random.default_rng(0)
    inserts, samples = [], []
    for size in sizes:
        buffer = SequenceBuffer(spec, size, 0.9)
        number = 0

        def insert(into: SequenceBuffer = buffer, envs: int = min(1000, size // 2)) -> None:
            nonlocal number
            into.add(chunk_of(spec, envs, number, random))
            number += 1

        each = min(1000, size // 2)
        while number * each < size:
            insert()
        made = _per_call_us(lambda e=each: chunk_of(spec, e, 0, random))  # type: ignore[misc]
        inserts.append(max(0.001, (_per_call_us(insert) - made) / each))
        samples.append(_per_call_us(lambda b=buffer: b.sample(random.random(BATCH))) / BATCH)  # type: ignore[misc]
    return [
        _fitted("a sequence inserted, µs", "sequences in replay", sizes, inserts),
        _fitted("a sequence sampled, µs", "sequences in replay", sizes, samples),
    ]


def _gossip(learners: int) -> float:
    addresses = [f"unix:/{rank}" for rank in range(learners)]
    settings = Gossip(replicas=learners, topology="gossip", addresses=addresses)
    topology = make_topology(settings)
    members = Membership(0, learners, 60.0)
    iteration = 0

    def turn() -> None:
        nonlocal iteration
        alive = members.alive()
        if len(alive) == learners:
            topology.in_peers(0, iteration)
            topology.out_peers(0, iteration)
        iteration += 1

    return _per_call_us(turn)
