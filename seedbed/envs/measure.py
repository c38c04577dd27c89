"""Measurement of a vector environment with random actions: its speed, and its contract."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbed.packed import random_actions
from seedbed.runtime.clock import monotonic, process_time
from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv


@dataclass
class Measured:
    """Counts of one measurement.

    Attributes:
        steps: environment steps.
        queued_s: time in which a thread was ready to run, but other processes had the CPUs.
        lives: lost lives.
        lowest: the lowest reward.
        highest: the highest reward.
        largest: the largest magnitude in a float observation.
        broken: how the first wrong step broke the contract of `TimeStep`; empty if none did.
        changed: whether any observation differed from the one before.
    """

    threads: int = 1
    steps: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0
    terminated: int = 0
    truncated: int = 0
    lives: int = 0
    lowest: float = 0.0
    highest: float = 0.0
    largest: float = 0.0
    broken: str = ""
    changed: bool = False
    failures: int = 0

    @property
    def rate(self) -> float:
        """Environment steps a second, without the time in the queue for a CPU."""
        busy_s = min(self.wall_s, self.cpu_s / self.threads)
        return self.steps / max(self.wall_s - self.queued_s, busy_s)

    @property
    def crowded(self) -> bool:
        """Return whether other processes had the CPUs so often that the speed is rough."""
        return self.queued_s > 0.1 * self.wall_s


def measure(env: VectorEnv, time_step: TimeStep, seconds: float, threads: int = 1) -> Measured:
    """Step with random actions, and check each step. The checks do not count as time."""
    measured = Measured(threads)
    random = np.random.default_rng(0)
    queued = _queued_s()
    while measured.wall_s < seconds:
        action = random_actions(env.spec, time_step.observation, random)
        wall, cpu = monotonic(), process_time()
        after = env.step(action)
        measured.wall_s += monotonic() - wall
        measured.cpu_s += process_time() - cpu
        measured.steps += env.num_envs
        _check(measured, env.spec, time_step, after)
        time_step = after
    # The threads wait at the same time, so the longest wait counts, not the sum.
    waits = [after_s - queued.get(task, 0.0) for task, after_s in _queued_s().items()]
    measured.queued_s = min(max(waits, default=0.0), measured.wall_s)
    # A failure at the start of an episode shows in no step, but the environment has counted it.
    measured.failures = max(measured.failures, sum(env.failures.values()))
    return measured


def _check(measured: Measured, spec: EnvironmentSpec, before: TimeStep, after: TimeStep) -> None:
    done: NDArray[np.bool_] = before.terminated | before.truncated
    measured.failures += int((after.first & ~done).sum())
    broken = ""
    if (done & ~after.first).any():
        broken = "no first step follows a finished one"
    elif after.reward[after.first].any():
        broken = "a first step has a reward"
    elif (after.terminated & after.truncated).any():
        broken = "a step is terminated and truncated"
    elif after.observation.dtype != np.dtype(spec.observation.dtype):
        broken = f"observations are {after.observation.dtype}, not {spec.observation.dtype}"
    measured.broken = measured.broken or broken
    measured.terminated += int(after.terminated.sum())
    measured.truncated += int(after.truncated.sum())
    measured.lives += int(after.life_lost.sum())
    measured.lowest = min(measured.lowest, float(after.reward.min()))
    measured.highest = max(measured.highest, float(after.reward.max()))
    for numbers in spec.observation.floats(after.observation):
        measured.largest = max(measured.largest, float(np.abs(numbers).max()))
    measured.changed = measured.changed or bool((before.observation != after.observation).any())


def _queued_s() -> dict[str, float]:
    """Return the seconds that each thread of this process was ready and had no CPU.

    Empty if the kernel does not report them.
    """
    waited = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            waited[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            # The thread has just ended, or the kernel has no such file.
            continue
    return waited
