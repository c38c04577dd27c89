"""How many runs of a set this machine trains at once, and the share of it that each of them gets.

Cores, memory and accelerators are counted. What a run takes of cores and memory is measured: until
then, one run trains alone.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter

from seedbed.launch.devices import count_devices, place_of_rank
from seedbed.runtime.limits import SHARE, usable_cpus, usable_memory_bytes
from seedbed.runtime.text import counted
from seedbed.runtime.usage import usage_of

# Of the memory that may be used: the rest is for files and for what was not measured.
_MEMORY = 0.9
# A run whose peak has not risen by a fiftieth for so long is measured.
_STEADY_S = 60.0
_RISE = 1.02
_GIB = 2**30
# Of a device, which JAX takes as it starts; TensorFlow takes what it needs.
_JAX_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"


class Shares:
    """Shares of this machine.

    Args:
        wanted: Runs at once; None is as many as fit.
        device: `learner.device` of the runs.
        per_device: Runs that may share an accelerator.
        report: Takes a line that tells how many run at once, and what bounds it.

    Attributes:
        most: Runs at once.
        is_measuring: Whether `most` follows from what `measure` measures.
    """

    def __init__(
        self, wanted: int | None, device: str, per_device: int, report: Callable[[str], None]
    ) -> None:
        self._per_device, self._report = per_device, report
        self._places = count_devices(device) * per_device
        self._cores, self._memory = usable_cpus(), usable_memory_bytes() * _MEMORY
        self._peak = self._peak_at = self._cores_of_a_run = 0.0
        self._is_alone = wanted == 1
        self.is_measuring = wanted is None
        self.most = 0
        self.most, self._is_told = wanted or 1, wanted is not None
        if wanted is None:
            report("one run at once until it is measured what a run takes")
        else:
            self._choose([(wanted, ""), *self._of_devices()])

    def measure(self, pids: Collection[int], begun: float, has_trained: bool) -> None:
        """Measure what the runs take, and let as many run as fit once that is known.

        Args:
            pids: Of the runs that run.
            begun: When the first of them has begun, by the monotonic clock.
            has_trained: Whether a run has trained, and so has taken what it takes.
        """
        now = time.monotonic()
        usages = [usage_of(pid) for pid in pids]
        peak = max(usage.memory_bytes for usage in usages)
        if peak > self._peak * _RISE:
            self._peak, self._peak_at = float(peak), now
        if len(usages) == 1 and self.most == 1:  # others would take cores from it
            self._cores_of_a_run = usages[0].cpu_seconds / (now - begun)
        if has_trained and now - self._peak_at >= _STEADY_S:
            self.choose()

    def choose(self) -> None:
        """Let as many run as fit after what was measured; nothing changes before."""
        if not self._peak or not self._cores_of_a_run:
            return
        cores, memory = self._cores_of_a_run, self._peak
        text = f", memory: a run takes {memory / _GIB:.1f} GiB of {self._memory / _GIB:.1f} GiB"
        self._choose(
            [
                # A core that is half idle costs more than runs that wait for each other.
                (
                    round(self._cores / cores),
                    f", cores: a run takes {cores:.1f} of {self._cores:g}",
                ),
                (int(self._memory / memory), text),
                *self._of_devices(),
            ]
        )

    def _of_devices(self) -> list[tuple[int, str]]:
        text = f", devices: place for {self._places}, and --runs-per-device makes more"
        return [(self._places, text)] if self._places else []

    def _choose(self, bounds: Sequence[tuple[int, str]]) -> None:
        before = self.most
        most, text = min(bounds, key=itemgetter(0))
        self.most = max(1, most)
        if self.most != before or not self._is_told:
            self._report(f"room for {counted(self.most, 'run')} at once{text}")
            self._is_told = True

    @contextmanager
    def given(self, slot: int, device: str) -> Iterator[Mapping[str, str]]:
        """Start a process with its share of the cores, and yield variables for its environment.

        What it starts has the same share, and counts its threads by that.

        Args:
            slot: Number of the run among those that run, from 0.
            device: `learner.device` of the run.
        """
        place = place_of_rank(slot, self._places or 1, device)
        environment = {} if self._is_alone else dict(place.environment)
        if environment and self._per_device > 1 and _JAX_MEMORY not in os.environ:
            environment[_JAX_MEMORY] = f"{0.9 / self._per_device:.3f}"
        if self.most > 1:  # each is charged its part of the machine
            memory = usable_memory_bytes() / self.most
            environment[SHARE] = f"{self._cores / self.most:g},{memory:.0f}"
        mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        if mine and self.most > 1:
            os.sched_setaffinity(0, share(sorted(mine), math.ceil(self._cores), slot, self.most))
        try:
            yield environment
        finally:
            if mine and self.most > 1:
                os.sched_setaffinity(0, mine)


def share(cores: Sequence[int], usable: int, slot: int, most: int) -> set[int]:
    """Return the cores of one run of several.

    Args:
        cores: All that this process may run on.
        usable: How many of them it may keep busy: the quota of a container.
        slot: Number of the run, from 0.
        most: Runs at once.
    """
    # Containers with quotas would otherwise all keep the first cores busy.
    first = os.getpid() if usable < len(cores) else 0
    usable = min(usable, len(cores))
    begin = slot * usable // most
    end = max(begin + 1, (slot + 1) * usable // most)
    return {cores[(first + index) % len(cores)] for index in range(begin, end)}
