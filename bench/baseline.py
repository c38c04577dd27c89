"""`baseline`: SEED and IMPALA, whose actors run the network, on the same cores in one sitting.

Everything goes over TCP, as between pods. The two share environments, network, unrolls, queue and
loss; only `learner.inference.location` differs.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from statistics import fmean
from typing import Any

from bench.command import START_S, Command, TrainingRun
from bench.figures import Figures, beside
from bench.machine import actor_cores
from bench.plan import Plan, write_pong
from bench.report import Table
from bench.sides import free_port
from seedbed.papers.printed import value_of
from seedbed.papers.seed_tables import LAB, LAB_BILLS, LATENCIES
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.limits import usable_cpus

log = logging.getLogger(__name__)

FIRST_UPDATES = 3
# Of a window, at least.
MIN_UPDATES = 3
WIDTHS = {1: "default", 2: "medium", 4: "large"}
# Of the LSTM of IMPALA's agent, at each width.
LSTM_UNITS = 256
TABLES = [
    Table(
        "SEED and IMPALA on {cores:g} cores: impala_deep with {lstm_units} LSTM units on Pong, "
        "unrolls of {unroll_length}, TCP "
        "(paper: DeepMind Lab, IMPALA on a P100, SEED on two TPU v3 cores)",
        "model | system | actors | environments | env frames/s | SEED faster | paper | "
        "$ per 1e9 frames | SEED cheaper | paper | bytes a frame sent | received | "
        "latency p50: ms | p99: ms | paper: ms | lag of first step | of last",
        "{model} | {system} | {actors} | {environments} | {env_fps:,.0f} | {seed_faster:.2f} | "
        "{paper_seed_faster:.2f} | {dollars[median]:,.2f} | {seed_cheaper:.2f} | "
        "{paper_seed_cheaper:.2f} | {sent_bytes[median]:,.0f} | {received_bytes[median]:,.0f} | "
        "{wait_ms_p50:,.1f} | {wait_ms_p99[median]:,.0f} | {paper_wait_ms:.1f} | "
        "{first_lag:.2f} | {last_lag:.2f}",
    )
]


def _paper(architecture: str, width: int) -> tuple[float, float, float]:
    """Return frames a second and dollars of 1e9 frames (Table 4), and ms of latency (Table 13).

    The paper's accelerators and actors differ between the two architectures.

    Args:
        architecture: IMPALA or SEED.
        width: 1, 2 or 4.
    """
    model = WIDTHS[width].capitalize()
    bill = next(b for b in LAB_BILLS if b.setup.name == f"{architecture}, {model}")
    row = next(r for r in LATENCIES if r.environment == LAB and r.model == model)
    latency = row.seed if architecture == "SEED" else row.impala
    return _number(bill.setup.speed), _number(bill.cost), _number(latency)


def _number(printed: str) -> float:
    value = value_of(printed)
    assert value is not None, f"{printed!r} is a figure of the paper"
    return value


def baseline(plan: Plan) -> dict[str, Any]:
    """Measure each width of `impala_deep` in turn: SEED, IMPALA by groups, IMPALA by single ones.

    An actor of IMPALA is a process with one thread. `single` has one environment in each, as in
    the paper; `grouped` as many environments as SEED's groups, and one batch for all of them.
    """
    cores = max(1, int(usable_cpus()))
    systems = {
        "seed": ("learner", actor_cores(), 2, plan.environments),
        "grouped": ("actor", cores, 1, plan.environments),
        "single": ("actor", cores, 1, 1),
    }
    cases = []
    widths = [width for width, name in WIDTHS.items() if plan.model in (None, name)]
    for width in plan.pick(widths, widths[:1]):
        sides = {
            name: partial(_measure, plan, count(), f"{name}-{width}", width, *system)
            for name, system in systems.items()
        }
        for name, figures in beside(plan.runs, sides, _compare).items():
            _, processes, groups, environments = systems[name]
            paper = _paper("SEED" if name == "seed" else "IMPALA", width)
            paper_seed = _paper("SEED", width)
            lags = [fmean(figures.pop(f"lag_{t}")["values"]) for t in range(plan.unroll_length)]
            cases.append(
                {
                    "model": WIDTHS[width],
                    "system": name,
                    "environments": processes * groups * environments,
                    "actors": processes,
                    **figures,
                    "policy_lag_by_step": lags,
                    "first_lag": lags[0],
                    "last_lag": lags[-1],
                    "paper_seed_faster": paper_seed[0] / paper[0],
                    "paper_seed_cheaper": paper[1] / paper_seed[1],
                    "paper_wait_ms": paper[2],
                }
            )
    if not cases:
        raise SeedbedError(ExitCode.INTERNAL, "no system was measured: see the log above")
    return {
        "cases": cases,
        "cores": usable_cpus(),
        "unroll_length": plan.unroll_length,
        "lstm_units": LSTM_UNITS,
    }


def write_experiment(plan: Plan, name: str, width: int, location: str, environments: int) -> str:
    """Write the experiment of one system; return its path.

    Args:
        plan: Its sizes are the experiment's.
        name: Of the file.
        width: Of the network: 1, 2 or 4.
        location: `learner.inference.location`.
        environments: Of a group.
    """
    return write_pong(
        plan, name, environments=environments,
        network="impala_deep", network_options=f"{{width: {width}}}", lstm_units=LSTM_UNITS,
        inference=f"{{location: {location}}}",
    )  # fmt: skip


def _compare(own: Figures, turn: Mapping[str, Figures]) -> Figures:
    seed = turn["seed"]
    return {
        "seed_faster": seed["env_fps"] / own["env_fps"],
        "seed_cheaper": own["dollars"] / seed["dollars"],
    }


def _measure(
    plan: Plan, numbers: Iterator[int], name: str, width: int, location: str, processes: int,
    groups: int, environments: int,
) -> Figures:  # fmt: skip
    with _System(plan, f"{name}-{next(numbers)}", width, location, environments) as system:
        system.start_actors(processes, groups)
        figures = system.measure()
    log.info("%s: %.0f frames/s", name, figures["env_fps"])
    return figures


class _System(TrainingRun):
    """A learner at a port of this machine, and its actors in processes of their own."""

    def __init__(self, plan: Plan, name: str, width: int, location: str, environments: int) -> None:
        self._plan, self._name, self._port = plan, name, free_port()
        self._experiment = write_experiment(plan, name, width, location, environments)
        super().__init__(self._experiment, plan.folder / name, port=self._port)
        self._actors = contextlib.ExitStack()

    def start_actors(self, processes: int, groups: int) -> None:
        """Start the actors, once the learner listens."""
        self.wait_until_log_says("listening on", START_S)
        for index in range(processes):
            command = Command(
                self._plan.folder / f"{self._name}-actor-{index}.log", "actor", self._experiment,
                "--learner", f"127.0.0.1:{self._port}", "--index", str(index),
                "--set", f"actor.groups={groups}",
            )  # fmt: skip
            self._actors.enter_context(command)

    def measure(self) -> dict[str, float]:
        """Return the figures of a window, with the policy lag of each step of an unroll."""
        self.wait_for_updates(FIRST_UPDATES)
        time.sleep(self._plan.training_warm_up_s)
        # From update to update: a wide network makes one in twelve seconds.
        before = self._next_update()
        ends = time.monotonic() + self._plan.training_window_s
        after = self.wait_for_updates(before["counters"]["updates"] + MIN_UPDATES)
        if time.monotonic() < ends:
            time.sleep(ends - time.monotonic())
            after = self._next_update()
        while after["numbers"]["round_trip_ms_p50"] is None:  # a short run has no latency yet
            after = self._next_update()
        seconds = after["read_at"] - before["read_at"]

        def gained(group: str, name: str) -> float:
            return float(after[group][name] - before[group][name])

        frames = gained("counters", "env_frames")
        return {
            "env_fps": gained("counters", "trained_frames") / seconds,
            "dollars": 1e9 * gained("counters", "dollars") / frames,
            "sent_bytes": gained("network_bytes", "actor sent") / frames,
            "received_bytes": gained("network_bytes", "actor received") / frames,
            "wait_ms_p50": after["numbers"]["round_trip_ms_p50"],
            "wait_ms_p99": after["numbers"]["round_trip_ms_p99"],
            **{f"lag_{t}": lag for t, lag in enumerate(after["policy_lag_by_step"])},
        }

    def _next_update(self) -> dict[str, Any]:
        return self.wait_for_updates(self.status()["counters"]["updates"] + 1)

    def __exit__(self, *error: object) -> None:
        self._actors.close()
        super().__exit__(*error)
