"""Devices of a host by role: those that act, and those that train."""

from typing import Any, NamedTuple


class Split(NamedTuple):
    """How many devices act, and how many train. Inference 0: one device does both."""

    inference: int
    training: int


# One device acts and trains.
SHARED = Split(0, 1)


class DeviceRoles(NamedTuple):
    """Devices that act, and devices that train. Without a split both are the same one device."""

    inference: tuple[Any, ...]
    training: tuple[Any, ...]


def roles_of(devices: list[Any], split: Split) -> DeviceRoles:
    """Return the first devices as those that act, and the next ones as those that train.

    Args:
        devices: at least as many as the split has.
        split: the split.
    """
    act = split.inference
    training = tuple(devices[act : act + split.training])
    return DeviceRoles(tuple(devices[:act]) or training[:1], training)
