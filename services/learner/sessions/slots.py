"""Slots: the indices of environments in the learner's device tables."""

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment
from seedbed.runtime.text import counted
from seedbed.services.learner.sessions.rejections import NoCapacity


class SlotAllocator:
    """Free slots of the device tables. Sessions of any size share them.

    Args:
        slots: how many slots there are.
        key: the setting of that number, for errors.
    """

    def __init__(self, slots: int, key: str = "learner.inference.slots") -> None:
        self.slots, self._key = slots, key
        self._available = list(range(slots))

    @property
    def available(self) -> int:
        """Number of free slots."""
        return len(self._available)

    def allocate(self, count: int) -> NDArray[np.int32]:
        """Allocate the lowest free slots.

        Returns:
            [count] int32.

        Raises:
            NoCapacity: fewer slots are free.
        """
        if count > len(self._available):
            raise NoCapacity(
                "slots",
                f"at most {counted(len(self._available), 'environment')} "
                f"({self.slots} slots in all)",
                counted(count, "environment"),
                f"raise {self._key} or run fewer actors",
            )
        return np.array([heapq.heappop(self._available) for _ in range(count)], np.int32)

    def free(self, slots: NDArray[np.int32]) -> None:
        """Free slots.

        Args:
            slots: [n] int32, which no inference batch may name any more.
        """
        for slot in slots.tolist():
            heapq.heappush(self._available, slot)


def exploration_of(experiment: Experiment, slots: Sequence[int]) -> tuple[float, float] | None:
    """Return the lowest and the highest exploration ε of the environments in slots.

    Args:
        experiment: names the agent.
        slots: [n] int32.

    Returns:
        None without slots, and where the agent is a user's own or is not ε-greedy.
    """
    options = experiment.builtin_options
    return options.exploration(np.asarray(slots)) if options and slots else None
