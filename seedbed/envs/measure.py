"""Step a group with random actions for a while: how fast, and whether its rows are in order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv


@dataclass
class Measured:
    """A run of a group."""

    threads: int = 1
    steps: int = 0  # of environments
    wall_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0  # ready to run, but other processes had the CPUs
    terminated: int = 0
    truncated: int = 0
    lives: int = 0
    lowest: float = 0.0
    highest: float = 0.0
    broken: str = ""  # the first row that broke the wire's rules
    changed: bool = False  # whether any observation differed from the one before
    failures: int = 0

    @property
    def rate(self) -> float:
        """Environment steps a second, as they would be with a CPU of our own."""
        busy_s = min(self.wall_s, self.cpu_s / self.threads)
        return self.steps / max(self.wall_s - self.queued_s, busy_s)

    @property
    def crowded(self) -> bool:
        """Whether something else had the CPUs so often that speeds are rough."""
        return self.queued_s > 0.1 * self.wall_s


def measure(group: VectorEnv, time_step: TimeStep, seconds: float, threads: int = 1) -> Measured:
    """Step for `seconds` with random actions; the checks themselves are not counted."""
    measured = Measured(threads)
    random = np.random.default_rng(0)
    actions = random.integers(0, group.spec.actions, (256, group.num_envs), np.int32)
    k, queued = 0, _queued_s()
    while measured.wall_s < seconds:
        wall, cpu = time.perf_counter(), time.process_time()
        after = group.step(actions[k % len(actions)])
        measured.wall_s += time.perf_counter() - wall
        measured.cpu_s += time.process_time() - cpu
        measured.steps += group.num_envs
        _look(measured, group.spec, time_step, after)
        time_step = after
        k += 1
    # The threads of a group wait at the same time, so the longest wait counts, not their sum.
    waits = [after_s - queued.get(task, 0.0) for task, after_s in _queued_s().items()]
    measured.queued_s = min(max(waits, default=0.0), measured.wall_s)
    # A failure at the start of an episode shows in no row, but the group has counted it.
    measured.failures = max(measured.failures, int(getattr(group, "failures", 0)))
    return measured


def _look(measured: Measured, spec: EnvironmentSpec, before: TimeStep, after: TimeStep) -> None:
    done: NDArray[np.bool_] = before.terminated | before.truncated
    measured.failures += int((after.first & ~done).sum())
    broken = ""
    if (done & ~after.first).any():
        broken = "no first row follows a finished one"
    elif after.reward[after.first].any():
        broken = "a first row carries a reward"
    elif (after.terminated & after.truncated).any():
        broken = "a row is terminated and truncated"
    elif after.observation.dtype != np.dtype(spec.observation.dtype):
        broken = f"observations are {after.observation.dtype}, not {spec.observation.dtype}"
    measured.broken = measured.broken or broken
    measured.terminated += int(after.terminated.sum())
    measured.truncated += int(after.truncated.sum())
    measured.lives += int(after.life_lost.sum())
    measured.lowest = min(measured.lowest, float(after.reward.min()))
    measured.highest = max(measured.highest, float(after.reward.max()))
    measured.changed = measured.changed or bool((before.observation != after.observation).any())


def _queued_s() -> dict[str, float]:
    """Seconds that each of our threads was ready and had no CPU; empty if the kernel won't tell."""
    waited = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            waited[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # a thread that has just ended, or another kernel
            continue
    return waited
