"""`system_efficiency` and `env_fps`: training Pong end to end, over the sum of its parts' costs."""

from __future__ import annotations

import time
from typing import Any

from bench.arithmetic import mflop_a_step
from bench.bare_environments import GROUPS
from bench.child import Child
from bench.figures import ratio, series
from bench.machine import gemm_gflops
from bench.plan import Plan, pong
from bench.training_run import TrainingRun
from seedbed.runtime.limits import usable_cpus

GOAL = 0.90
FPS_GOAL = {"nature": 7000}
FIRST_UPDATES = 3
ACTION_REPEAT = FRAME_STACK = 4
SETTLE_S = 2.0  # after the run was held


def system_efficiency(plan: Plan) -> dict[str, Any]:
    """For each network.

    The limit is `cores / (c_env + c_infer + c_train)`, where each c is the CPU seconds of a step
    of one part alone. `serial` is `1 / (w_env + w_infer + w_train)` with the wall seconds of each
    alone with all cores: what a program would reach that does one after the other. `arithmetic`
    is the limit if the network ran at the speed of a large matrix product, `gemm_gflops`, which
    nothing in this project can change: `1 / (c_env / cores + operations / gemm_gflops)`.
    """
    cases = [_case(plan, network) for network in plan.networks]
    return {"cases": cases, "value": min(case["efficiency"]["median"] for case in cases)}


def _case(plan: Plan, network: str) -> dict[str, Any]:
    path = plan.folder / f"system-{network}.yaml"
    path.write_text(pong(plan, network=network))
    turns: list[dict[str, Any]] = []
    with (
        TrainingRun(path, plan.folder / f"system-{network}") as training,
        Child("model_parts", plan.folder, str(path), name=f"parts-{network}") as parts,
        Child(
            "bare_environments", plan.folder, str(path), str(plan.environments),
            str(plan.actor_threads), name=f"environments-{network}",
        ) as bare,
    ):  # fmt: skip
        training.wait_for_updates(FIRST_UPDATES)
        time.sleep(plan.system_warm_up_s)
        for _ in range(plan.runs):
            system = _window(plan, training)
            training.hold()
            # Sessions are answered as a whole, so batches are multiples of a group.
            mean = system["batch_environments"] or plan.environments
            batch = plan.environments * max(1, round(mean / plan.environments))
            turns.append(
                {
                    "system": system,
                    "batch": batch,
                    "gemm_gflops": gemm_gflops(plan.gemm_size, tries=3),
                    "env": bare.ask("measure", seconds=plan.part_window_s, warm_up_s=0.3),
                    "infer": parts.ask("infer", environments=batch, seconds=plan.part_window_s),
                    "train": parts.ask("train", seconds=plan.part_window_s),
                }
            )
            training.go_on()
    return _figures(plan, network, turns)


def _window(plan: Plan, training: TrainingRun) -> dict[str, Any]:
    """Steps a second of a stretch of the run, everything included."""
    if plan.system_warm_up_s:
        time.sleep(SETTLE_S)
    before = training.status()
    time.sleep(plan.system_window_s)
    training.wait_for_updates(before["counters"]["updates"] + 1)  # on a machine that is too busy
    after = training.status()
    seconds = after["read_at"] - before["read_at"]
    grown = {
        name: after["counters"][name] - before["counters"][name]
        for name in ("env_frames", "trained_frames", "updates")
    }
    return {
        "env_fps": grown["env_frames"] / seconds,
        "trained_fps": grown["trained_frames"] / seconds,
        "updates_per_s": grown["updates"] / seconds,
        "batch_environments": after["numbers"].get("batch_environments"),
        "numbers": after["numbers"],
        "bottleneck": after["bottleneck"],
        "rss": after["rss"],
    }


def _figures(plan: Plan, network: str, turns: list[dict[str, Any]]) -> dict[str, Any]:
    cores = usable_cpus()
    mflop = mflop_a_step(network, FRAME_STACK, plan.unroll_length)
    env_cpu = [t["env"]["cpu_s"] / t["env"]["steps"] for t in turns]
    env_wall = [t["env"]["seconds"] / t["env"]["steps"] for t in turns]
    infer, train = ([t[part]["cpu_s"] for t in turns] for part in ("infer", "train"))
    limit = [cores / sum(costs) for costs in zip(env_cpu, infer, train, strict=True)]
    wall = [[t[part]["wall_s"] for t in turns] for part in ("infer", "train")]
    serial = [1 / sum(costs) for costs in zip(env_wall, *wall, strict=True)]
    gemm = [t["gemm_gflops"] for t in turns]
    arithmetic = [
        1 / (cpu / cores + mflop / 1e3 / speed) for cpu, speed in zip(env_cpu, gemm, strict=True)
    ]
    fps = [t["system"]["env_fps"] for t in turns]
    reached = [value / ACTION_REPEAT for value in fps]
    last = turns[-1]["system"]
    return {
        "network": network,
        "goal": GOAL,
        "efficiency": ratio(reached, limit),
        "env_fps": series(fps),
        "env_fps_goal": FPS_GOAL.get(network),
        "trained_fps": series([t["system"]["trained_fps"] for t in turns]),
        "steps_per_s": series(reached),
        "limit_steps_per_s": series(limit),
        "serial_steps_per_s": series(serial),
        "arithmetic_steps_per_s": series(arithmetic),
        "gemm_gflops": series(gemm),
        "mflop_a_step": mflop,
        "cores": cores,
        "env_cpu_us": series([1e6 * x for x in env_cpu]),
        "infer_cpu_us": series([1e6 * x for x in infer]),
        "train_cpu_us": series([1e6 * x for x in train]),
        "infer_batch": turns[-1]["batch"],
        "groups": GROUPS,
        "bottleneck": last["bottleneck"],
        "numbers": last["numbers"],
    }  # fmt: skip
