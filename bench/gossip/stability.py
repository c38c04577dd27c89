"""Share of runs that learn (Assran et al. 2019, figure 1a).

A2C and GALA-A2C run with 16, 32 and 64 simulators over several seeds. With 16 simulators GALA is
one learner, which is A2C.

A run is successful if its score at the end is better than half of the mean score of A2C with 16
simulators. A2C of n·16 simulators is one learner with all of them, because all-reduce makes the
same updates. Only scores count, so as many runs as there are cores run at a time.
"""

import importlib.util
import logging
import os
import statistics
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.gossip.learner_processes import LearnerProcesses, shipped
from bench.plan import Plan
from bench.report import Case, Table
from seedbed.runtime.exit_codes import SeedbedError

log = logging.getLogger(__name__)

# Enough frames for a learner of 16 simulators to learn each task.
TASKS: dict[str, dict[str, Any]] = {
    "CartPole": {"environment": {"id": "CartPole-v1"}, "stop": {"env_frames": 300_000}},
    "Catch": {
        "environment": {"id": "bench.gossip.environments:Catch"},
        "learner": {"network": "impala_shallow", "network_options": {"standardize": True}},
        "a2c": {"reward_scale": 1.0, "entropy_cost": 0.003},
        "stop": {"env_frames": 200_000},
    },
}
LONGEST_S = 900.0
_POLL_S = 0.2
# JAX is the faster one for such small networks.
BACKEND = "jax" if importlib.util.find_spec("jax") else "tensorflow"


def _rows(task: Case) -> Iterable[Case]:
    """Yield the runs of each case. Their scores are in rising order, missing ones first."""
    for name, share in task["successful"].items():
        scores = task["scores"][name]
        known = sorted(score for score in scores if score is not None)
        missing = ["none"] * (len(scores) - len(known))
        text = ", ".join([*missing, *(f"{score:.3g}" for score in known)])
        yield {"name": name, "share": share, "runs": len(scores), "scores": text}


TABLES = [
    Table(
        "{name}: runs above half of A2C's mean score with 16 simulators ({half_of_nominal:.4g}) "
        "after {env_frames:,} frames ({backend})",
        "method, simulators | successful | runs | scores",
        "{name} | {share:%} | {runs} | {scores}",
        _rows,
    )
]


def stability(plan: Plan) -> dict[str, Any]:
    """Run every case of every task, and compute the shares."""
    return {task: _task(plan, task) for task in plan.pick((*TASKS,), ("CartPole",))}


def _task(plan: Plan, task: str) -> dict[str, Any]:
    cases = {
        f"{'gala' if learners > 1 else 'a2c'} {simulators}": (learners, simulators // learners)
        for simulators in plan.pick((16, 32, 64), (16, 32))
        for learners in sorted({1, max(1, simulators // 16)})
    }
    frames = plan.pick(TASKS[task]["stop"]["env_frames"], 3_000)
    runs = [(seed, case) for seed in range(1, plan.pick(10, 1) + 1) for case in cases]
    interrupted = threading.Event()

    def score(run: tuple[int, str]) -> float | None:
        if interrupted.is_set():
            return None
        seed, case = run
        folder = plan.folder / f"{task}-{case}-{seed}".replace(" ", "-")
        with _start(folder, task, frames, *cases[case], seed) as learners:
            deadline = time.monotonic() + LONGEST_S
            while not (learners.over or interrupted.is_set() or time.monotonic() > deadline):
                time.sleep(_POLL_S)
            found = _score(learners)
        log.info("gossip: %s, seed %d, %s: %s", task, seed, case, found)
        return found

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as teams:
        try:
            found = list(teams.map(score, runs))
        except BaseException:
            interrupted.set()
            raise
    scores: dict[str, list[float | None]] = {case: [] for case in cases}  # by seed
    for (_, case), of in zip(runs, found, strict=True):
        scores[case].append(of)
    nominal = [score for score in scores["a2c 16"] if score is not None]
    half = statistics.mean(nominal) / 2
    return {
        "backend": BACKEND,
        "env_frames": frames,
        "half_of_nominal": half,
        "scores": scores,
        "successful": {
            case: sum(score is not None and score > half for score in of) / len(of)
            for case, of in scores.items()
        },
    }


def _start(
    folder: Path, task: str, frames: int, learners: int, simulators: int, seed: int
) -> LearnerProcesses:
    tree = shipped("cartpole-a2c.yaml", simulators)
    for section, change in TASKS[task].items():
        tree[section] = {**tree.get(section, {}), **change}
    tree["seed"] = seed
    tree["learner"]["backend"] = BACKEND
    tree["learner"]["optimizer"]["nominal_envs"] = 16
    tree["stop"] = {"env_frames": frames}
    return LearnerProcesses(folder, tree, learners)


def _score(learners: LearnerProcesses) -> float | None:
    """Return the mean return of all learners' last episodes; None if the run failed."""
    try:
        summaries = learners.summaries()
    except SeedbedError as error:
        log.warning("gossip: a run without a score: %s", error)
        return None
    episodes = sum(one["mean_return_episodes"] for one in summaries)
    earned = sum((one["mean_return"] or 0.0) * one["mean_return_episodes"] for one in summaries)
    return float(earned / max(1, episodes))
