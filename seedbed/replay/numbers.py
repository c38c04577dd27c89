"""Numbers of sequences that other processes send, or that files of an earlier release hold."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.numbers import Bounds, InvalidNumbers, check_flags, check_magnitudes, check_range
from seedbed.replay.sequence import SequenceSpec

# Largest magnitude of a recurrent state: an LSTM adds at most 1 a step.
MAX_STATE = 1e9
_ACTIONS = 2**31 - 1  # of a spec that does not say how many


def check_numbers(
    spec: SequenceSpec, arrays: Mapping[str, NDArray[Any]], bounds: Bounds, lowest_action: int = -1
) -> None:
    """Check the numbers of sequences, but for their priorities.

    Args:
        spec: Sizes of a sequence.
        arrays: Arrays [..., *shape] of `SequenceSpec.arrays`, not empty. Without `frames`, frames
            are not checked.
        bounds: Largest magnitudes of rewards and float frames.
        lowest_action: 0, or -1 where time steps may be from before the stream began.

    Raises:
        InvalidNumbers: The first number that is not allowed.
    """
    last = (spec.actions or _ACTIONS) - 1
    check_magnitudes("reward", arrays["reward"], bounds.reward)
    check_flags(arrays["flags"])
    check_range("action", arrays["action"], lowest_action, last)
    check_range("previous_action", arrays["previous_action"], -1, last)
    check_range("version", arrays["version"], 0, sys.float_info.max)
    if spec.state_size:
        check_magnitudes("state", arrays["state"], MAX_STATE)
    if "frames" in arrays:
        for numbers in spec.observation.floats(arrays["frames"]):
            check_magnitudes("frames", numbers, bounds.observation)


def wrong_items(
    spec: SequenceSpec, arrays: Mapping[str, NDArray[Any]], items: NDArray[np.int64], bounds: Bounds
) -> list[int]:
    """Return the items whose numbers are not allowed.

    Args:
        spec: Sizes of a sequence.
        arrays: Arrays [capacity, ...] of a buffer.
        items: Items [n] to check.
        bounds: Largest magnitudes of rewards and float frames.
    """
    if not len(items):
        return []
    names = ["reward", "flags", "action", "previous_action", "version", "state", "frames"]
    if not spec.observation.floats(arrays["frames"][items[:1]]):
        names.pop()  # most of the bytes, and not looked at
    try:
        check_numbers(spec, {name: arrays[name][items] for name in names}, bounds)
        return []
    except InvalidNumbers:
        if len(items) == 1:
            return [int(items[0])]
    halves = np.array_split(items, 2)
    return [item for half in halves for item in wrong_items(spec, arrays, half, bounds)]
