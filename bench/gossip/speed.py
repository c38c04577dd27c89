"""Frames a second under gossip, and under all-reduce with as many simulators."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.gossip.learner_processes import ROOT, LearnerProcesses
from bench.plan import Plan

log = logging.getLogger(__name__)

# Simulators of each learner.
SIMULATORS = 16
# Additional time of each step of the straggler.
SLOW_S = 0.01


def pong_a2c() -> dict[str, Any]:
    """Return experiments/pong-a2c.yaml without its stop conditions."""
    tree: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / "pong-a2c.yaml").read_text())
    tree.pop("stop")
    return tree


def speed(plan: Plan) -> dict[str, Any]:
    """Measure Pong. Each case runs `plan.runs` times, in turn with the others; medians count."""
    cases: dict[str, tuple[int, int, str]] = {"1 learner": (1, SIMULATORS, "gossip")}
    for count in plan.gossip_learners:
        cases[f"{count} gossip"] = (count, SIMULATORS, "gossip")
        cases[f"{count} allreduce"] = (count, SIMULATORS, "allreduce")
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for run in range(plan.runs):
        for number, (name, case) in enumerate(cases.items()):
            log.info("gossip: speed, run %d: %s", run + 1, name)
            rates[name].append(_run(plan, plan.folder / f"speed-{run}-{number}", *case))
    medians = {name: _median(found) for name, found in rates.items()}
    return {
        "environment": "atari:Pong",
        "simulators": SIMULATORS,
        "cases": medians,
        # Part of the learner's time, and of its training steps, that the training thread spends
        # on the exchange.
        "gossip_share_of_time": {
            name: rate["gossip_seconds"] / rate["learners"] for name, rate in medians.items()
        },
        "gossip_share_of_steps": {
            name: rate["gossip_seconds"] / rate["training_s"] for name, rate in medians.items()
        },
        "ratios": {
            f"{count} gossip / {other}": medians[f"{count} gossip"]["env_frames"]
            / medians[other]["env_frames"]
            for count in plan.gossip_learners
            for other in ("1 learner", f"{count} allreduce")
        },
    }


def straggler(plan: Plan) -> dict[str, Any]:
    """Measure CartPole with slow environments in the first group of one learner."""
    count, rates = max(plan.gossip_learners), dict[str, list[dict[str, float]]]()
    for run in range(plan.runs):
        for topology in ("gossip", "allreduce"):
            for slow in (False, True):
                name = f"{topology}, {'one slow' if slow else 'all fast'}"
                log.info("gossip: straggler, run %d: %s", run + 1, name)
                folder = plan.folder / f"straggler-{run}-{topology}-{slow}"
                rates.setdefault(name, []).append(
                    _straggling(plan, folder, count, topology, SLOW_S if slow else 0.0)
                )
    medians = {name: _median(found) for name, found in rates.items()}
    frames = {name: rate["env_frames"] for name, rate in medians.items()}
    return {
        "environment": "CartPole-v1",
        "learners": count,
        "slow_s": SLOW_S,
        "cases": medians,
        "kept": {
            topology: frames[f"{topology}, one slow"] / frames[f"{topology}, all fast"]
            for topology in ("gossip", "allreduce")
        },
        "gossip / allreduce, one slow": frames["gossip, one slow"] / frames["allreduce, one slow"],
    }


def _run(plan: Plan, folder: Path, count: int, simulators: int, topology: str) -> dict[str, float]:
    tree = pong_a2c()
    tree["actor"]["envs_per_group"] = simulators // tree["actor"]["groups"]
    tree["learner"]["batch_size"] = simulators
    return _measured(plan, folder, tree, [{}] * count, topology)


def _straggling(
    plan: Plan, folder: Path, count: int, topology: str, sleep_s: float
) -> dict[str, float]:
    tree = yaml.safe_load((ROOT / "experiments" / "cartpole-a2c.yaml").read_text())
    tree.pop("stop")
    tree["environment"] = {
        "id": "bench.gossip.environments:make_slow",
        "kwargs": {"id": "CartPole-v1", "sleep_s": 0.0},
    }
    tree["actor"]["envs_per_group"] = SIMULATORS // tree["actor"]["groups"]
    tree["learner"]["batch_size"] = SIMULATORS
    ranks: list[Mapping[str, Any]] = [{} for _ in range(count)]
    if sleep_s:
        ranks[0] = {"environment.kwargs.sleep_s": sleep_s / (SIMULATORS // 2)}
    return _measured(plan, folder, tree, ranks, topology)


def _measured(
    plan: Plan, folder: Path, tree: dict[str, Any], ranks: list[Mapping[str, Any]], topology: str
) -> dict[str, float]:
    with LearnerProcesses(folder, tree, ranks, topology=topology) as processes:
        found = processes.measure(plan.system_warm_up_s, plan.gossip_window_s)
    total = {name: sum(rate[name] for rate in found) for name in found[0]}
    return {**total, "learners": len(ranks)}


def _median(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(rate[name] for rate in found) for name in found[0]}
