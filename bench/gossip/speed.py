"""Part `gossip`: frames a second by each topology with as many simulators."""

import logging
import statistics
from collections.abc import Mapping
from typing import Any

from bench.gossip.exchange import exchange
from bench.gossip.learner_processes import LearnerProcesses, shipped
from bench.plan import PONG, Plan
from seedbed.telemetry.energy import EnergyStats

log = logging.getLogger(__name__)

# Simulators of each learner.
SIMULATORS = 16
# Additional time of each step of the straggler.
SLOW_S = 0.01
TOPOLOGIES = ("gossip", "allreduce", "hogwild")


def gossip(plan: Plan) -> dict[str, Any]:
    """Measure the wire, speed and lost time, and the effect of a straggler."""
    return {"exchange": exchange(plan), "speed": speed(plan), "straggler": straggler(plan)}


def speed(plan: Plan) -> dict[str, Any]:
    """Measure Pong with different numbers of learners."""
    cases: dict[str, tuple[int, str, list[str]]] = {"1 learner": (1, "gossip", [])}
    for count in plan.gossip_learners:
        for topology in TOPOLOGIES:
            cases[f"{count} {topology}"] = (count, topology, [])
    medians = _medians(plan, "speed", shipped("pong-a2c.yaml", SIMULATORS), cases)
    return {
        "environment": PONG,
        "simulators": SIMULATORS,
        "energy": EnergyStats(plan.cpu_watts).sources,
        "cpu_watts": plan.cpu_watts,
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
            for other in ("1 learner", f"{count} allreduce", f"{count} hogwild")
        },
    }


def straggler(plan: Plan) -> dict[str, Any]:
    """Measure CartPole with slow environments in the first group of one learner."""
    count = max(plan.gossip_learners)
    tree = shipped("cartpole-a2c.yaml", SIMULATORS)
    tree["environment"] = {
        "id": "bench.gossip.environments:Slow",
        "kwargs": {"id": "CartPole-v1", "sleep_s": 0.0},
    }
    # The environments of a group step one after the other.
    slow = ["--set", f"environment.kwargs.sleep_s={SLOW_S / (SIMULATORS // 2)}"]
    cases = {
        f"{topology}, {pace}": (count, topology, options)
        for topology in TOPOLOGIES
        for pace, options in (("all fast", []), ("one slow", slow))
    }
    medians = _medians(plan, "straggler", tree, cases)
    frames = {name: rate["env_frames"] for name, rate in medians.items()}
    return {
        "environment": "CartPole-v1",
        "learners": count,
        "slow_s": SLOW_S,
        "cases": medians,
        "kept": {
            topology: frames[f"{topology}, one slow"] / frames[f"{topology}, all fast"]
            for topology in TOPOLOGIES
        },
        "gossip / allreduce, one slow": frames["gossip, one slow"] / frames["allreduce, one slow"],
    }


def _medians(
    plan: Plan,
    part: str,
    tree: Mapping[str, Any],
    cases: Mapping[str, tuple[int, str, list[str]]],
) -> dict[str, dict[str, float]]:
    """Measure each case `plan.runs` times, in turn with the others; return the medians.

    Args:
        plan: Times and runs.
        part: For the log and the folders.
        tree: The experiment.
        cases: Learners, topology, and more arguments of the first learner, by name.
    """
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for run in range(plan.runs):
        for number, (name, (count, topology, first)) in enumerate(cases.items()):
            log.info("gossip: %s, run %d: %s", part, run + 1, name)
            folder = plan.folder / f"{part}-{run}-{number}"
            with LearnerProcesses(folder, tree, count, *first, topology=topology) as learners:
                grown = learners.measure(
                    plan.system_warm_up_s, plan.gossip_window_s, plan.cpu_watts
                )
            rates[name].append({**grown, "learners": count})
    return {
        name: {key: statistics.median(rate[key] for rate in found) for key in found[0]}
        for name, found in rates.items()
    }
