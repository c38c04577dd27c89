"""`system_efficiency` and `env_fps`: training Pong end to end, over the sum of its parts' costs."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.arithmetic import mflop_a_step
from bench.bare_environments import GROUPS
from bench.child import Child
from bench.command import TrainingRun
from bench.figures import in_turn
from bench.machine import gemm_gflops
from bench.plan import Plan, write_pong
from bench.report import Table
from seedbed.runtime.limits import usable_cpus

GOAL = 0.92
FPS_GOAL = {"nature": 7000}
FIRST_UPDATES = 3
ACTION_REPEAT = FRAME_STACK = 4
ROUND_TRIP = ("round_trip_ms_p50", "round_trip_ms_p99")
SETTLE_S = 2.0  # after the run was held
TABLES = [
    Table(
        "system_efficiency",
        "network | efficiency | goal | env_fps | goal | round trip p50, ms | p99, ms | steps/s | "
        "limit | each alone | one after the other | arithmetic | "
        "CPU a step: environment + inference + training",
        "{network} | {efficiency:,.2f} | {goal:,.2f} | {env_fps:,.0f} | {env_fps_goal:,.0f} | "
        "{round_trip_ms_p50:,.1f} | {round_trip_ms_p99:,.1f} | {steps_per_s:,.0f} | "
        "{limit_steps_per_s:,.0f} | {limit_alone_steps_per_s:,.0f} | {serial_steps_per_s:,.0f} | "
        "{arithmetic_steps_per_s[median]:,.0f} ({mflop_a_step:.0f} MFLOP at "
        "{gemm_gflops[median]:.0f} GFLOP/s) | {env_cpu_us[median]:.0f} + "
        "{infer_cpu_us[median]:.0f} + {train_cpu_us[median]:.0f} µs (inference of {infer_batch})",
    )
]


def system_efficiency(plan: Plan) -> dict[str, Any]:
    """For each network.

    The limit is `cores / (c_env + c_infer + c_train)`, where each c is the CPU seconds of a step of
    one part while the other two run beside it, each in a process, as fast as they go: they share
    caches and memory, as in the system. `limit_alone_steps_per_s` is that of each part alone.
    `serial` is `1 / (w_env + w_infer + w_train)` with the wall seconds of each alone: what a
    program would reach that does one after the other. `arithmetic` is the limit if the network ran
    at the speed of a large matrix product, `gemm_gflops`, which nothing in this project can change:
    `1 / (c_env / cores + operations / gemm_gflops)`.

    `round_trip_ms_p50` and `_p99` are the end-to-end latency of Table 13 of the SEED paper: from an
    actor's sending of a group's time step until its actions are there, over the last 4,096 steps of
    groups at each turn's end.
    """
    networks = plan.pick(("nature", "impala_shallow"), ("nature",))
    cases = [_case(plan, network) for network in networks]
    return {"cases": cases, "value": min(case["efficiency"]["median"] for case in cases)}


def _case(plan: Plan, network: str) -> dict[str, Any]:
    path = write_pong(plan, f"system-{network}", network=network)
    mflop = mflop_a_step(network, FRAME_STACK, plan.unroll_length)
    last: dict[str, Any] = {}
    with (
        TrainingRun(path, plan.folder / f"system-{network}") as training,
        Child(
            "model_parts:Parts", plan.folder, f"inference-{network}",
            experiment=path, actors_here=True,
        ) as acting,
        Child(
            "model_parts:Parts", plan.folder, f"training-{network}",
            experiment=path, actors_here=True,
        ) as learning,
        Child(
            "bare_environments:Bare", plan.folder, f"environments-{network}",
            experiment=path, num_envs=plan.environments, threads=plan.actor_threads,
        ) as bare,
    ):  # fmt: skip
        training.wait_for_updates(FIRST_UPDATES)
        time.sleep(plan.training_warm_up_s)

        def turn() -> dict[str, float]:
            if plan.training_warm_up_s:
                time.sleep(SETTLE_S)
            before, after = training.window(plan.training_window_s)
            training.hold()
            # Sessions are answered as a whole, so batches are multiples of a group.
            mean = after["numbers"].get("batch_environments") or plan.environments
            batch = plan.environments * max(1, round(mean / plan.environments))
            gemm = gemm_gflops(plan.pick(2048, 256), tries=3)
            alone, beside = _costs(plan.pick(2.5, 0.4), bare, acting, learning, batch)
            training.go_on()
            last.update(after, infer_batch=batch)
            return _figures(before, after, alone, beside, mflop, gemm)

        figures = in_turn(plan.runs, {"": turn})
    return {
        "network": network,
        "goal": GOAL,
        "env_fps_goal": FPS_GOAL.get(network),
        **figures,
        "mflop_a_step": mflop,
        "cores": usable_cpus(),
        "infer_batch": last["infer_batch"],
        "groups": GROUPS,
        "bottleneck": last["bottleneck"],
        "numbers": last["numbers"],
    }


def _costs(
    seconds: float, bare: Child, acting: Child, learning: Child, batch: int
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return CPU and wall seconds of a step of each part: one at a time, and all three at once."""

    def environments() -> dict[str, float]:
        env = bare.ask("measure", seconds=seconds, warm_up_s=0.3)
        return {"cpu_s": env["cpu_s"] / env["steps"], "wall_s": env["seconds"] / env["steps"]}

    parts: list[Callable[[], dict[str, float]]] = [
        environments,
        lambda: acting.ask("infer", environments=batch, seconds=seconds),
        lambda: learning.ask("train", seconds=seconds),
    ]
    alone = [part() for part in parts]
    with ThreadPoolExecutor(len(parts)) as threads:
        return alone, list(threads.map(lambda part: part(), parts))


def _figures(
    before: dict[str, Any],
    after: dict[str, Any],
    alone: Sequence[dict[str, float]],
    beside: Sequence[dict[str, float]],
    mflop: float,
    gemm: float,
) -> dict[str, float]:
    """Return the figures of one turn.

    Args:
        before: Status at the begin of the window.
        after: Status at its end.
        alone: CPU and wall seconds of a step: environment, inference, training, one at a time.
        beside: the same, all three at once.
        mflop: Millions of operations of a step.
        gemm: GFLOP/s of a matrix product.
    """
    seconds, cores = after["read_at"] - before["read_at"], usable_cpus()
    env_fps, trained_fps = (
        (after["counters"][name] - before["counters"][name]) / seconds
        for name in ("env_frames", "trained_frames")
    )
    reached = env_fps / ACTION_REPEAT
    cpu, cpu_alone = ([cost["cpu_s"] for cost in costs] for costs in (beside, alone))
    limit = cores / sum(cpu)
    return {
        "efficiency": reached / limit,
        "env_fps": env_fps,
        "trained_fps": trained_fps,
        "steps_per_s": reached,
        "limit_steps_per_s": limit,
        "limit_alone_steps_per_s": cores / sum(cpu_alone),
        "serial_steps_per_s": 1 / sum(cost["wall_s"] for cost in alone),
        "arithmetic_steps_per_s": 1 / (cpu_alone[0] / cores + mflop / 1e3 / gemm),
        "gemm_gflops": gemm,
        "env_cpu_us": 1e6 * cpu[0],
        "infer_cpu_us": 1e6 * cpu[1],
        "train_cpu_us": 1e6 * cpu[2],
        **{name: after["numbers"][name] for name in ROUND_TRIP},
    }
