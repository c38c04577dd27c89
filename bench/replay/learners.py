"""Several learners that sample from one shard, and what of the way prefetch hides."""

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.child import Child
from bench.figures import in_turn
from bench.plan import Plan
from bench.replay.content import atari, chunk_of
from bench.replay.shard import EXPONENT, START_S, start_shard
from bench.sides import address_of
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.sequence import Sample
from seedbed.runtime.allocator import keep_large_blocks

BATCH = 64
ENVIRONMENTS = 32
LEARNERS = (1, 2, 4)
AHEAD = 2  # requests under way where several learners sample
# Batches ahead: none, and the default of `learner.replay.prefetch_batches`.
PREFETCHED = (0, 2)
# Time of an update on an accelerator, for which the cores are free: a stand-in, which sleeps.
UPDATE_S = 0.05
_LONGEST_S = 60.0


class SamplingLearner:
    """One learner's side of a replay, in a process of its own."""

    def __init__(self, shard: str) -> None:
        keep_large_blocks()
        self._replay = ShardedReplay(atari(), [shard], EXPONENT, timeout_s=_LONGEST_S)
        self._random = np.random.default_rng(0)

    def fill(self, sequences: int) -> None:
        """Insert so many sequences."""
        chunk = chunk_of(atari(), ENVIRONMENTS, 0, self._random)
        for number in range(sequences // ENVIRONMENTS):
            self._replay.add(replace(chunk, chunk_index=number))
        self._replay.flush(_LONGEST_S)

    def draw(self, seconds: float) -> float:
        """Return sequences a second, with `AHEAD` requests under way."""
        self._replay.flush(_LONGEST_S)  # asks the shard, which another learner has filled
        waiting = deque(self._request() for _ in range(AHEAD))
        started, batches = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < seconds or batches < AHEAD:
            waiting.append(self._request())
            waiting.popleft().result(_LONGEST_S)
            batches += 1
        for request in waiting:
            request.result(_LONGEST_S)
        return BATCH * batches / passed

    def update_s(self, updates: int, ahead: int) -> float:
        """Return the seconds of an update, its batch and its new priorities included.

        Args:
            updates: How many.
            ahead: Batches that are requested before the update ahead of theirs begins.
        """
        waiting: deque[Future[Sample]] = deque()
        started = 0.0
        for update in range(-2, updates):  # two are not measured
            if update == 0:
                started = time.perf_counter()
            while len(waiting) <= ahead:
                waiting.append(self._request())
            sample = waiting.popleft().result(_LONGEST_S)
            time.sleep(UPDATE_S)
            self._replay.update_priorities(sample.keys, np.ones(BATCH, np.float32))
        took = (time.perf_counter() - started) / updates
        for request in waiting:
            request.result(_LONGEST_S)
        return took

    def _request(self) -> Future[Sample]:
        return self._replay.request_sample(self._random.random(BATCH))


def learners(plan: Plan) -> dict[str, Any]:
    """Measure both, through shared memory and over TCP."""
    sampling, prefetch, sequences = [], [], plan.pick(1024, 128)
    for way in ("shared memory", "tcp"):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="seedbed-bench-")))
            shard = address_of(way, folder, "shard")
            process = stack.enter_context(start_shard(folder, shard, sequences))
            process.wait_until_log_says("listening", START_S)
            target = "replay.learners:SamplingLearner"
            children = [
                stack.enter_context(Child(target, folder, f"learner-{number}", shard=shard))
                for number in range(max(LEARNERS))
            ]
            children[0].ask("fill", sequences=sequences)
            pool = stack.enter_context(ThreadPoolExecutor(len(children)))
            for count in LEARNERS:
                figures = in_turn(plan.runs, {"": partial(_turn, plan, pool, children[:count])})
                sampling.append({"way": way, "learners": count, **figures})
            prefetch.append({"way": way, "update_s": UPDATE_S, **_hidden(plan, children[0])})
    return {"sampling": sampling, "prefetch": prefetch}


def _turn(plan: Plan, pool: ThreadPoolExecutor, children: list[Child]) -> dict[str, float]:
    """Let some learners sample at once; return their rate together, and the least and the most."""
    draws = [pool.submit(one.ask, "draw", seconds=plan.pick(1.5, 0.1)) for one in children]
    rates = [draw.result() for draw in draws]
    mean = sum(rates) / len(rates)
    return {
        "drawn_per_s": sum(rates),
        "drawn_mb_per_s": sum(rates) * atari().frames * 84 * 84 / 1e6,
        "least": min(rates) / mean,
        "most": max(rates) / mean,
    }


def _hidden(plan: Plan, child: Child) -> dict[str, Any]:
    """Return the seconds of an update with and without prefetch, and what part it hides."""

    def turn() -> dict[str, float]:
        without, ahead = (
            child.ask("update_s", updates=plan.pick(12, 2), ahead=ahead) for ahead in PREFETCHED
        )
        hidden = (without - ahead) / (without - UPDATE_S)
        return {"without_s": without, "prefetched_s": ahead, "hidden": hidden}

    return in_turn(plan.runs, {"": turn})
