"""Memory of the devices: what a learner allocates at its start must fit."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from seedbed.backends.protocol import Backend
from seedbed.replay.sequence import format_bytes
from seedbed.runtime.exit_codes import ConfigError

log = logging.getLogger(__name__)


class Need(NamedTuple):
    """Memory that one part takes on a device.

    Attributes:
        what: the part, in words.
        size: its bytes.
        key: the setting that its size follows from.
        value: the value of that setting, to which the size is proportional; 0 if it is no number.
        instead: another way out, in words.
    """

    what: str
    size: int
    key: str
    value: int = 0
    instead: str = ""


def check_memory(backend: Backend, acting: Sequence[Need], training: Sequence[Need]) -> None:
    """Check that what is allocated at the start fits the devices.

    Args:
        backend: backend of the learner.
        acting: what a device that acts needs.
        training: what a device that trains needs; one device does both unless they have roles.

    Raises:
        SeedbedError: CONFIG: too little memory, with both numbers and what to reduce.
    """
    devices, limit, split = backend.devices(), backend.memory_bytes(), backend.split
    parts_of = [(devices[0], [*acting, *training])]
    if split.inference:
        first = min(split.inference, len(devices) - 1)  # of those that train
        parts_of = [(devices[0], list(acting)), (devices[first], list(training))]
    for device, needs in parts_of:
        total = sum(need.size for need in needs)
        parts = ", ".join(f"{need.what} {format_bytes(need.size)}" for need in needs)
        log.info("memory on %s before the first batch: %s", device, parts)
        if limit and total > limit:
            largest = max(needs, key=lambda need: need.size)
            raise ConfigError(
                f"{device} has {format_bytes(limit)} of memory, and before its first batch the "
                f"learner needs {format_bytes(total)} there ({parts}): "
                f"{_cure(largest, limit - total + largest.size)}"
            )


def _cure(need: Need, left: int) -> str:
    """Return what to reduce, where the other parts leave `left` bytes."""
    fit = max(0, need.value * left // need.size)
    to = f" from {need.value} to at most {fit}, less what a batch needs" if fit else ""
    return f"reduce {need.key}{to}{need.instead}"
