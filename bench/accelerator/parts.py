"""The parts of the first hour, in order of value."""

import json
import subprocess
import sys
from functools import partial
from typing import Any

from bench.accelerator import experiments
from bench.accelerator.context import LONGEST_S, Context
from bench.accelerator.curves import curves
from bench.accelerator.in_gpu_paper import in_gpu_paper
from bench.accelerator.nvidia import nvidia
from bench.accelerator.session import Case, Part
from bench.accelerator.sizes import PRECISIONS, every_precision
from bench.child import ROOT
from bench.figures import series
from bench.machine import machine_info

COMPILE_S = 20.0  # of a child's start and its first step on an accelerator


def parts(context: Context, minutes: float, is_quick: bool) -> list[Part]:
    """Return all parts with their cases.

    Args:
        context: Of this call.
        minutes: Of the whole measurement.
        is_quick: No case is left out for lack of time.
    """
    made = [
        Part("doctor", 1, [Case("machine", lambda _: _doctor(context), 5)]),
        Part("invariant", 3, _invariant(context)),
        Part("inference", 8, _inference(context)),
        Part("training", 7, _training(context)),
        in_gpu_paper(context, share=14),
        Part("r2d2_on_device", 5, _r2d2_on_device(context)),
        Part("end_to_end", 12, _end_to_end(context)),
        curves(context, share=10, minutes=minutes),
    ]
    if not is_quick:
        return made
    return [part._replace(cases=[c._replace(least_s=0) for c in part.cases]) for part in made]


def _doctor(context: Context) -> dict[str, Any]:
    folder, sizes = context.folder, context.sizes
    path = experiments.vtrace_parts(folder, sizes, context.backend, "float32", 1, 1)
    command = [sys.executable, "-m", "seedbed.cli.main", "check", "machine", path, "--json"]
    check = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=LONGEST_S)
    found = json.loads(check.stdout)
    return {
        "machine": machine_info(256 if sizes.small_network else 2048),
        "nvidia": nvidia(),
        "findings": found["findings"],
        **context.ask("accelerator.device:Device", "facts", {"experiment": path}),
    }


def _invariant(context: Context) -> list[Case]:
    def measure(_: float, precision: str) -> dict[str, Any]:
        path = experiments.invariant(context.folder, context.sizes, context.backend, precision)
        made_with = {"experiment": path}
        found: dict[str, Any] = context.ask(
            "accelerator.invariant:Invariant", "measure", made_with, precision=precision
        )
        return found

    return [Case(p, partial(measure, precision=p), COMPILE_S) for p in every_precision()]


def _inference(context: Context) -> list[Case]:
    sizes = context.sizes
    largest = max(sizes.inference_batches)

    def measure(_: float, precision: str, rows: int, busy: bool) -> dict[str, Any]:
        path = experiments.vtrace_parts(
            context.folder, sizes, context.backend, precision, sizes.busy_batch, largest
        )
        measured = context.ask(
            "model_parts:Parts", "latency", {"experiment": path},
            environments=rows, seconds=sizes.window_s, busy=busy,
        )  # fmt: skip
        training = "busy" if busy else "idle"
        return {"precision": precision, "rows": rows, "training": training, **measured}

    return [
        Case(
            f"{precision}/{rows}/{'busy' if busy else 'idle'}",
            partial(measure, precision=precision, rows=rows, busy=busy),
            3,
        )
        for precision in PRECISIONS
        for rows in sizes.inference_batches
        for busy in (False, True)
    ]


def _training(context: Context) -> list[Case]:
    sizes = context.sizes

    def measure(_: float, precision: str, batch: int) -> dict[str, Any]:
        path = experiments.vtrace_parts(context.folder, sizes, context.backend, precision, batch, 1)
        took = context.ask(
            "model_parts:Parts", "update_ms", {"experiment": path},
            seconds=sizes.window_s, runs=sizes.runs,
        )  # fmt: skip
        steps = batch * sizes.unroll_length
        return {
            "precision": precision,
            "batch_size": batch,
            "unroll_length": sizes.unroll_length,
            "update_ms": series(took),
            "steps_per_s": series([1e3 * steps / ms for ms in took]),
        }

    return [
        Case(f"{precision}/{batch}", partial(measure, precision=precision, batch=batch))
        for precision in every_precision()
        for batch in sizes.training_batches
    ]


def _r2d2_on_device(context: Context) -> list[Case]:
    sizes = context.sizes

    def measure(_: float, precision: str) -> dict[str, Any]:
        path = experiments.write(
            context.folder,
            f"r2d2-on-device-{precision}",
            agent="r2d2",
            learner=experiments.r2d2_learner(sizes, context.backend, precision, sizes.sequences, 2),
            r2d2=experiments.r2d2_options(sizes),
        )
        found = context.ask(
            "accelerator.replay_capacity:ReplayCapacity", "measure", {"experiment": path},
            sequences=sizes.sequences, seconds=sizes.window_s, runs=sizes.runs,
        )  # fmt: skip
        context.end_child()
        return {"precision": precision, **found}

    return [Case(p, partial(measure, precision=p), 60) for p in PRECISIONS]


def _end_to_end(context: Context) -> list[Case]:
    sizes = context.sizes

    def measure(seconds: float, agent: str, environment: str, precision: str) -> dict[str, Any]:
        path = experiments.end_to_end(
            context.folder, sizes, context.backend, precision, agent, environment
        )
        window = min(sizes.end_to_end_window_s, max(seconds - 60, 10))
        found = context.rates(path, f"run-{agent}-{environment}-{precision}", window)
        return {
            "agent": agent,
            "environment": environment,
            "precision": precision,
            "environments": experiments.total_environments(sizes),
            **found,
        }

    return [
        Case(
            f"{agent}/{environment}/{precision}",
            partial(measure, agent=agent, environment=environment, precision=precision),
            45,
        )
        for agent, environment, precision in [
            *((agent, environment, "float32") for agent, environment in sizes.end_to_end),
            # Where environments cost something, precision is not what bounds a run.
            *(
                (agent, environment, precision)
                for agent, environment in sizes.end_to_end
                for precision in PRECISIONS[1:]
                if environment == "null" and not sizes.small_network
            ),
        ]
    ]
