"""Checks and measurements of an environment, for `seedbed check env`."""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seedbed.config.environment import Environment
from seedbed.envs.advice import Advice, advise
from seedbed.envs.measure import Measured, measure
from seedbed.envs.registry import make_vector_env
from seedbed.envs.seeds import environment_seed
from seedbed.envs.watched import Deadline, WatchedVectorEnv
from seedbed.packed import random_actions
from seedbed.rpc.step_codec import Step, write_actor_message
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.text import counted
from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv

REPRODUCED_STEPS = 50
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """Result of one check. `result` is `ok`, `warning` or `failed`."""

    name: str
    result: str
    detail: str


@dataclass
class Report:
    """Results of `seedbed check env`.

    Attributes:
        environment: the `environment.id`.
        speed: measured speeds and sizes, with units in their names.
    """

    environment: str
    spec: EnvironmentSpec | None = None
    checks: list[Check] = field(default_factory=list)
    speed: dict[str, float] = field(default_factory=dict)
    advice: Advice | None = None

    @property
    def ok(self) -> bool:
        """Return whether no check failed. Warnings are allowed."""
        return not any(check.result == "failed" for check in self.checks)

    def add(self, name: str, detail: str, result: str = "ok") -> None:
        """Add the result of a check."""
        self.checks.append(Check(name, result, detail))

    def warn(self, name: str, detail: str) -> None:
        """Add a warning."""
        self.add(name, detail, "warning")


def check_environment(
    environment: Environment,
    num_envs: int,
    seconds: float,
    report_progress: Progress = lambda _: None,
    timeout_s: float = 60.0,
    on_late: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Make an environment, compare two runs of one seed, measure it, and give advice.

    Args:
        environment: the experiment's section.
        num_envs: environments that step together.
        seconds: duration of the measurement, for each number of threads.
        report_progress: receives a line for each stage.
        timeout_s: longest time of a call into the environment.
        on_late: called with the report so far when a call takes longer; then the process ends.
    """
    report = Report(environment.id)

    def late(sentence: str) -> None:
        report.add("hangs", sentence, "failed")
        on_late(report)

    deadline = Deadline(timeout_s, late)
    try:
        return _check(report, environment, num_envs, seconds, report_progress, deadline)
    finally:
        deadline.watchdog.close()


def _check(
    report: Report,
    environment: Environment,
    num_envs: int,
    seconds: float,
    report_progress: Progress,
    deadline: Deadline,
) -> Report:
    report_progress(f"making {counted(num_envs, 'environment')} of {environment.id}")
    before = _resident_bytes()
    try:
        group = _make(environment, num_envs, 1, deadline)
    except SeedbedError as error:
        report.add("make", str(error), "failed")
        return report
    try:
        report.spec = spec = group.spec
        sizes = f"{spec.action}, {counted(spec.action_repeat, 'frame')} a step"
        report.add("spaces", f"observation {spec.observation}, {sizes}")
        report_progress("comparing runs of the same and of other seeds")
        _check_seeds(report, environment, min(num_envs, 4), deadline)
        report_progress(f"stepping for {seconds:g} s")
        start = group.reset()
        memory = max(0, _resident_bytes() - before) / num_envs
        measured = measure(group, start, seconds)
        _check_steps(report, measured)
        _check_bounds(report, measured, environment)
        speedup = None
        fast = environment.id.startswith("atari:") and environment.atari.preprocessing == "fast"
        if fast and len(os.sched_getaffinity(0)) >= 2:
            report_progress(f"stepping with two threads for {seconds:g} s")
            speedup = _two_threads(report, environment, num_envs, seconds, measured, deadline)
        _add_speed(report, measured, start, memory, speedup)
    except SeedbedError as error:
        report.add("step", str(error), "failed")
    finally:
        group.close()
    return report


def _check_steps(report: Report, measured: Measured) -> None:
    fits = "finished steps, then first steps with reward 0, as the protocol needs them"
    report.add("rows", measured.broken or fits, "failed" if measured.broken else "ok")
    if measured.failures:
        detail = f"environments made again after an error: {measured.failures}; see the log above"
        report.warn("failures", detail)
    if ended := measured.terminated + measured.truncated:
        detail = f"{measured.terminated} terminated, {measured.truncated} truncated"
        detail = f"{ended} ended in {measured.steps} steps ({detail}), {measured.lives} lives lost"
        report.add("episodes", detail)
    else:
        detail = f"none ended within {measured.steps} steps of random play: long episodes, or is a "
        report.warn("episodes", detail + "time limit missing? --seconds looks for longer")
    if not measured.changed:
        report.warn("observations", "no observation differed from the one before")
    spread = f"from {measured.lowest:g} to {measured.highest:g} in a step, finite"
    if measured.lowest == measured.highest == 0:
        report.warn("rewards", "all 0 in random play: a sparse reward, or none at all?")
    elif max(-measured.lowest, measured.highest) > 1:
        report.add("rewards", spread + "; consider vtrace.reward_clip or vtrace.reward_scale")
    else:
        report.add("rewards", spread)


def _check_bounds(report: Report, measured: Measured, environment: Environment) -> None:
    reward = max(-measured.lowest, measured.highest)
    for name, largest in (("reward", reward), ("observation", measured.largest)):
        bound = getattr(environment.bounds, name)
        if largest > bound:
            detail = f"a {name} of {largest:g}: the learner refuses numbers beyond {bound:g}; "
            report.warn("bounds", f"{detail}scale them, or raise environment.max_abs_{name}")


def _check_seeds(
    report: Report, environment: Environment, num_envs: int, deadline: Deadline
) -> None:
    runs = [_play(environment, num_envs, deadline, run_seed) for run_seed in (1, 1, 2)]
    steps = len(runs[0]) - 1
    parted = next((t for t in range(steps + 1) if not _same(runs[0][t], runs[1][t])), None)
    if parted is None:
        report.add("seeds", f"the same seeds gave the same {steps} steps")
    else:
        report.warn(
            "seeds",
            f"the same seeds gave other results from step {parted} on: runs cannot be repeated; "
            "does reset(seed=...) pass its seed on (super().reset(seed=seed), self.np_random)?",
        )
    if all(_same(a, b) for a, b in zip(runs[0], runs[2], strict=True)):
        detail = (
            f"other seeds gave the same {steps} steps: if that continues, all environments play "
        )
        report.warn("other seeds", detail + "alike until their actions differ")


def _play(
    environment: Environment, num_envs: int, deadline: Deadline, run_seed: int
) -> list[TimeStep]:
    with closing(_make(environment, num_envs, 1, deadline, run_seed)) as group:
        random = np.random.default_rng(0)
        time_steps = [group.reset()]
        for _ in range(REPRODUCED_STEPS):
            action = random_actions(group.spec, time_steps[-1].observation, random)
            time_steps.append(group.step(action))
        return time_steps


def _same(one: TimeStep, other: TimeStep) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _two_threads(
    report: Report,
    environment: Environment,
    num_envs: int,
    seconds: float,
    one: Measured,
    deadline: Deadline,
) -> float | None:
    """Return steps/s with two threads divided by steps/s with one; None if unknown."""
    with closing(_make(environment, num_envs, 2, deadline)) as group:
        two = measure(group, group.reset(), seconds, threads=2)
    report.speed["steps_per_second_2_threads"] = two.rate
    return None if one.crowded or two.crowded else two.rate / one.rate


def _add_speed(
    report: Report, measured: Measured, time_step: TimeStep, memory: float, speedup: float | None
) -> None:
    num_envs = len(time_step.reward)
    arrays = (time_step.observation.tobytes(), time_step.reward.tobytes(), bytes(num_envs))
    message_bytes = len(write_actor_message(Step(1 << 20, *arrays, 1.0, 1.0)))
    step_s, cpu_s = 1 / measured.rate, measured.cpu_s / measured.steps
    if measured.crowded:
        report.warn(
            "machine",
            f"busy with other processes: the threads waited {measured.queued_s:.1f} s of "
            f"{measured.wall_s:.1f} s for a CPU. The speeds exclude that time, and are rough",
        )
    report.speed.update(
        steps_per_second=measured.rate,
        cpu_seconds_per_step=cpu_s,
        cpus_used=cpu_s / step_s,
        message_bytes=message_bytes,
        megabytes_per_second=message_bytes / num_envs * measured.rate / 1e6,
        mib_per_environment=memory / 2**20,
    )
    if cpu_s > 1.3 * step_s and not report.environment.startswith("atari:"):
        report.warn(
            "threads",
            f"one thread of the actor kept {cpu_s / step_s:.1f} CPUs busy: the environment has "
            "threads of its own; set OMP_NUM_THREADS=1 or give the pod as many CPUs",
        )
    report.advice = advise(step_s, cpu_s, speedup, memory)


def _make(
    environment: Environment, num_envs: int, threads: int, deadline: Deadline, run_seed: int = 1
) -> VectorEnv:
    seeds = [environment_seed(run_seed, 0, 0, i) for i in range(num_envs)]
    return WatchedVectorEnv(
        lambda: make_vector_env(environment, num_envs, threads, seeds), deadline
    )


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
