"""Advice for the settings of an actor, from the measured cost of an environment."""

from dataclasses import dataclass, field
from math import ceil

# CPU time of a message for the actor over TCP: 0.17 to 0.21 ms were measured, 0.15 through shared
# memory.
MESSAGE_CPU_S = 0.2e-3
# Largest part of a group's step that its message may take.
MESSAGE_SHARE = 0.03
# Longest step of a group. A longer one would increase the policy lag and slow down the start.
LONGEST_STEP_S = 0.1
MOST_ENVIRONMENTS = 256
MOST_GROUPS = 8


@dataclass
class Advice:
    """Settings of the experiment's section `actor` and of the pod, with reasons.

    Attributes:
        steps_per_second: environment steps of such an actor, while the learner keeps up.
    """

    groups: int
    environments: int
    threads: int
    cpus: int
    memory_mib: int
    steps_per_second: float
    reasons: list[str] = field(default_factory=list)


def advise(
    step_s: float, cpu_s: float, threads_speedup: float | None, memory_bytes: float
) -> Advice:
    """Return the smallest useful pod: one busy CPU, with few messages.

    Args:
        step_s: seconds of a step of one environment in a group, with one thread.
        cpu_s: CPU seconds of such a step.
        threads_speedup: steps/s with two threads divided by steps/s with one; None if unknown.
        memory_bytes: resident memory of one environment.
    """
    reasons = []
    # An environment that waits for a simulator or a network leaves its CPU idle meanwhile.
    busy = min(1.0, cpu_s / step_s)
    groups = min(MOST_GROUPS, ceil(1 / busy) + 1) if busy < 0.7 else 2
    if groups == 2:
        reasons.append("groups 2: one steps while the other waits for its actions")
    else:
        reasons.append(
            f"groups {groups}: a step uses the CPU for {busy:.0%} of its time only, so several "
            "groups wait side by side"
        )
    wanted = MESSAGE_CPU_S / (MESSAGE_SHARE * cpu_s)
    fits = max(1.0, LONGEST_STEP_S / step_s)
    environments = min(_power_of_two(wanted), _power_of_two_below(fits), MOST_ENVIRONMENTS)
    share = MESSAGE_CPU_S / (environments * cpu_s)
    step_ms, message_ms = environments * step_s * 1e3, MESSAGE_CPU_S * 1e3
    cpu_ms = environments * cpu_s * 1e3
    limit = "" if share < 1 else f", more than the {cpu_ms:.2g} ms of CPU that the step takes"
    reasons.append(
        f"envs_per_group {environments}: a step of the group takes {step_ms:.3g} ms, and "
        f"sending it {message_ms:g} ms of CPU{limit}"
    )
    second = (
        f"a second thread gives {threads_speedup:.2f} times the speed and a second actor 2; "
        if threads_speedup
        else ""
    )
    reasons.append(
        f"cpus 1, threads 1: {second}for more speed take more actors; small pods fit more nodes, "
        "and less is lost with a Spot node"
    )
    memory = (groups * environments * memory_bytes + 150 * 2**20) / 2**20
    reasons.append(
        f"memory: {memory_bytes / 2**20:.1f} MiB an environment, and 150 MiB for the process"
    )
    return Advice(
        groups=groups,
        environments=environments,
        threads=1,
        cpus=1,
        memory_mib=ceil(memory / 64) * 64,
        steps_per_second=min(1 / (cpu_s * (1 + share)), groups / step_s),
        reasons=reasons,
    )


def _power_of_two(x: float) -> int:
    """Return the least power of two that is at least x."""
    return 1 << max(0, ceil(x) - 1).bit_length()


def _power_of_two_below(x: float) -> int:
    """Return the largest power of two that is at most x, which is 1 or more."""
    return 1 << (int(x).bit_length() - 1)
