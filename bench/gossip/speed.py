"""Part `gossip`: frames a second by each topology with as many simulators."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from bench.figures import beside
from bench.gossip.exchange import exchange
from bench.gossip.learner_processes import LearnerProcesses, shipped
from bench.plan import PONG, Plan
from bench.report import Case, Table, named
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry.energy import EnergyStats

log = logging.getLogger(__name__)

# Simulators of each learner.
SIMULATORS = 16
# Additional time of each step of the straggler.
SLOW_S = 0.01
TOPOLOGIES = ("gossip", "allreduce", "hogwild")


def _shares(part: Case) -> Iterable[Case]:
    """Yield the cases with the shares of time that they spend on the exchange."""
    speed = part["speed"]
    for name, case in speed["cases"].items():
        shares = {key: speed[f"gossip_share_of_{key}"][name] for key in ("time", "steps")}
        yield {"name": name, **case, **shares}


TABLES = [
    Table(
        "bytes on the wire of a mixing, TCP, everything counted",
        "parameters of | bytes | on the wire | ratio | goal",
        "{name} | {parameters_bytes:,} | {wire_bytes:,.0f} | {ratio:.4f} | 1.02",
        lambda part: named(part["exchange"]),
    ),
    Table(
        "learners on {speed[environment]}, {speed[simulators]} simulators each; energy by "
        "{speed[energy]} (model: {speed[cpu_watts]:g} W a busy vCPU), of the whole machine",
        "learners | env frames/s | updates/s | mixes/s | of the learner's time | "
        "of its training steps | frames a kilojoule",
        "{name} | {env_frames:,.0f} | {updates:.1f} | {gossip_mixes:.1f} | {time:.2%} | "
        "{steps:.1%} | {frames_per_kilojoule:,.0f}",
        _shares,
    ),
    Table(
        "frames a second, as ratios",
        " | ratio",
        "{case[0]} | {case[1]:.2f}",
        lambda part: ({"case": pair} for pair in part["speed"]["ratios"].items()),
    ),
    Table(
        "a straggler: {straggler[learners]} learners on {straggler[environment]}, the steps of one "
        "of them {straggler[slow_s]:g} s longer",
        "learners | env frames/s",
        "{name} | {env_frames:,.0f}",
        lambda part: named(part["straggler"]["cases"]),
    ),
    Table(
        "With the straggler gossip keeps {straggler[kept][gossip]:%}, allreduce keeps "
        "{straggler[kept][allreduce]:%}, hogwild {straggler[kept][hogwild]:%}; gossip is "
        "{straggler[gossip / allreduce, one slow]:.2f} times as fast as all-reduce then."
    ),
]


def gossip(plan: Plan) -> dict[str, Any]:
    """Measure the wire, speed and lost time, and the effect of a straggler."""
    counts = plan.pick((2, 4), (2,))
    return {
        "exchange": exchange(plan),
        "speed": _speed(plan, counts),
        "straggler": _straggler(plan, max(counts)),
    }


def _speed(plan: Plan, counts: Sequence[int]) -> dict[str, Any]:
    """Measure Pong with different numbers of learners."""
    cases: dict[str, tuple[int, str, list[str]]] = {"1 learner": (1, "gossip", [])}
    for learners in counts:
        for topology in TOPOLOGIES:
            cases[f"{learners} {topology}"] = (learners, topology, [])
    medians = _medians(plan, "speed", shipped("pong-a2c.yaml", SIMULATORS), cases)
    return {
        "environment": PONG,
        "simulators": SIMULATORS,
        "energy": EnergyStats(_cpu_watts(plan)).sources,
        "cpu_watts": _cpu_watts(plan),
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
            f"{learners} gossip / {other}": medians[f"{learners} gossip"]["env_frames"]
            / medians[other]["env_frames"]
            for learners in counts
            for other in ("1 learner", f"{learners} allreduce", f"{learners} hogwild")
        },
    }


def _straggler(plan: Plan, learners: int) -> dict[str, Any]:
    """Measure CartPole with slow environments in the first group of one learner."""
    tree = shipped("cartpole-a2c.yaml", SIMULATORS)
    tree["environment"] = {
        "id": "bench.gossip.environments:Slow",
        "kwargs": {"id": "CartPole-v1", "sleep_s": 0.0},
    }
    # The environments of a group step one after the other.
    slow = ["--set", f"environment.kwargs.sleep_s={SLOW_S / (SIMULATORS // 2)}"]
    cases = {
        f"{topology}, {pace}": (learners, topology, options)
        for topology in TOPOLOGIES
        for pace, options in (("all fast", []), ("one slow", slow))
    }
    medians = _medians(plan, "straggler", tree, cases)
    frames = {name: rate["env_frames"] for name, rate in medians.items()}
    return {
        "environment": "CartPole-v1",
        "learners": learners,
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
    """Measure each case in turn with the others; return the medians.

    Args:
        plan: Times and runs.
        part: For the log and the folders.
        tree: The experiment.
        cases: Learners, topology, and more arguments of the first learner, by name.
    """
    numbers = count()

    def measure(name: str, learners: int, topology: str, first: list[str]) -> dict[str, float]:
        log.info("gossip: %s: %s", part, name)
        folder = plan.folder / f"{part}-{next(numbers)}"
        with LearnerProcesses(folder, tree, learners, *first, topology=topology) as running:
            warm_up_s, watts = plan.training_warm_up_s, _cpu_watts(plan)
            grown = running.measure(warm_up_s, plan.pick(15.0, 2.0), watts)
        return {**grown, "learners": learners}

    sides = {name: partial(measure, name, *case) for name, case in cases.items()}
    found = beside(plan.runs, sides)
    if missing := cases.keys() - found.keys():
        raise SeedbedError(ExitCode.INTERNAL, f"no turn has figures of {', '.join(missing)}")
    return {
        name: {figure: of["median"] for figure, of in figures.items()}
        for name, figures in found.items()
    }


def _cpu_watts(plan: Plan) -> float:
    """Return the power of a busy vCPU, where nothing counts: 280 W of 128 threads."""
    return plan.pick(2.2, 2.2, "cpu_watts")
