"""`baseline`: SEED and IMPALA, whose actors run the network, on the same cores in one sitting.

Everything goes over TCP, as between pods. The two share environments, network, unrolls, queue and
loss; only `learner.inference.location` differs.
"""

import contextlib
import json
import logging
import time
from typing import Any

import grpc
import numpy as np

from bench.actor import free_port
from bench.command import Command
from bench.figures import series_of
from bench.plan import Plan, write_pong
from seedbed.papers.printed import value_of
from seedbed.papers.seed_tables import LAB, LAB_BILLS, LATENCIES
from seedbed.rpc import channels
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.limits import usable_cpus
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

# The first update of the largest network compiles, on cores that may be few.
START_S, STATUS_S = 900.0, 120.0
FIRST_UPDATES = 3
# Of a window, at least.
MIN_UPDATES = 3
WIDTHS = {1: "default", 2: "medium", 4: "large"}
# Of the LSTM of IMPALA's agent, at each width.
LSTM_UNITS = 256


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
    systems = {
        "seed": ("learner", 1, 2, plan.environments),
        "grouped": ("actor", max(1, int(usable_cpus())), 1, plan.environments),
        "single": ("actor", max(1, int(usable_cpus())), 1, 1),
    }
    cases = []
    for width in plan.baseline_widths:
        # By turn; a busy machine may fail one.
        turns: dict[str, dict[int, dict[str, float]]] = {name: {} for name in systems}
        lags: dict[str, list[list[float]]] = {name: [] for name in systems}
        for turn in range(plan.runs):
            for name, (location, processes, groups, environments) in systems.items():
                folder = f"{name}-{width}-{turn}"
                try:
                    with _System(plan, folder, width, location, environments) as one:
                        one.start_actors(processes, groups)
                        figures, lag = one.measure()
                except SeedbedError as error:
                    log.error("%s is left out: %s", folder, error)
                    continue
                log.info("%s: %.0f frames/s", folder, figures["env_fps"])
                turns[name][turn] = figures
                lags[name].append(lag)
        seed = turns["seed"]
        for name, (_, processes, groups, environments) in systems.items():
            pairs = [(seed[turn], turns[name][turn]) for turn in turns[name] if turn in seed]
            if not pairs:
                log.error("no turn of %s with width %d has figures, with SEED beside", name, width)
                continue
            paper = _paper("SEED" if name == "seed" else "IMPALA", width)
            paper_seed = _paper("SEED", width)
            of_seed = [
                {
                    "seed_faster": ours["env_fps"] / theirs["env_fps"],
                    "seed_cheaper": theirs["dollars"] / ours["dollars"],
                }
                for ours, theirs in pairs
            ]
            cases.append(
                {
                    "model": WIDTHS[width],
                    "system": name,
                    "environments": processes * groups * environments,
                    "actors": processes,
                    **series_of(list(turns[name].values())),
                    **series_of(of_seed),
                    "policy_lag_by_step": np.mean(lags[name], axis=0).tolist(),
                    "first_lag": float(np.mean(lags[name], axis=0)[0]),
                    "last_lag": float(np.mean(lags[name], axis=0)[-1]),
                    "paper_seed_faster": paper_seed[0] / paper[0],
                    "paper_seed_cheaper": paper[1] / paper_seed[1],
                    "paper_wait_ms": paper[2],
                }
            )
    if not cases:
        raise SeedbedError(ExitCode.INTERNAL, "no system was measured: see the log above")
    return {"cases": cases, "cores": usable_cpus(), "unroll_length": plan.unroll_length}


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


class _System(Command):
    """A learner at a port of this machine, and its actors in processes of their own."""

    def __init__(self, plan: Plan, name: str, width: int, location: str, environments: int) -> None:
        self._plan, self._name = plan, name
        self._experiment = write_experiment(plan, name, width, location, environments)
        self._address = f"127.0.0.1:{free_port()}"
        super().__init__(
            plan.folder / f"{name}.log", "learner", self._experiment,
            "--run-dir", str(plan.folder / name), "--listen", self._address,
        )  # fmt: skip
        self._actors = contextlib.ExitStack()
        self._channel = channels.channel(self._address)
        self._stub = wire_grpc.InferenceStub(self._channel)

    def start_actors(self, processes: int, groups: int) -> None:
        """Start the actors, once the learner listens."""
        self.wait_until_log_says("listening on", START_S)
        for index in range(processes):
            command = Command(
                self._plan.folder / f"{self._name}-actor-{index}.log", "actor", self._experiment,
                "--learner", self._address, "--index", str(index),
                "--set", f"actor.groups={groups}",
            )  # fmt: skip
            self._actors.enter_context(command)

    def status(self) -> dict[str, Any]:
        """Return the learner's status of now, with `read_at` in seconds."""
        deadline = time.monotonic() + STATUS_S
        while True:
            try:
                reply = self._stub.GetStatus(
                    wire.GetStatusRequest(), timeout=STATUS_S, wait_for_ready=True
                )
                break
            except grpc.RpcError as error:
                # A learner on a busy machine may read a request too late, and refuses it then.
                if time.monotonic() > deadline:
                    raise self.failed(f"does not say its status ({error})") from error
        return {**json.loads(reply.json), "read_at": time.perf_counter()}

    def measure(self) -> tuple[dict[str, float], list[float]]:
        """Return the figures of a window, and the policy lag of each step of an unroll."""
        self._wait_for_updates(FIRST_UPDATES)
        time.sleep(self._plan.system_warm_up_s)
        # From update to update: a wide network makes one in twelve seconds.
        before = self._next_update()
        ends = time.monotonic() + self._plan.system_window_s
        after = self._wait_for_updates(before["counters"]["updates"] + MIN_UPDATES)
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
        }, after["policy_lag_by_step"]

    def _next_update(self) -> dict[str, Any]:
        return self._wait_for_updates(self.status()["counters"]["updates"] + 1)

    def _wait_for_updates(self, updates: int) -> dict[str, Any]:
        """Return the status once so many updates were made."""
        deadline = time.monotonic() + START_S
        while (status := self.status())["counters"]["updates"] < updates:
            self.check()
            if time.monotonic() > deadline:
                raise self.failed(f"has not made {updates} updates within {START_S:g} s")
            time.sleep(0.1)
        return status

    def __exit__(self, *error: object) -> None:
        self._actors.close()
        self._channel.close()
        super().__exit__(*error)
