"""Samples of a replay on the device, copied to the host so that tests can look at them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.sequence import TIMED, UNTIMED, Sample


def device_sample(replay: Any, uniform: NDArray[np.float64]) -> Sample:
    """Draw a batch from a `DeviceReplay`, and copy it to the host.

    Args:
        replay: The replay on the device.
        uniform: [B] numbers in [0, 1).
    """
    # The upper 24 bits choose the group, those below the item in the group.
    upper = np.floor(uniform * 2**24)
    pair = np.stack([upper / 2**24, uniform * 2**24 - upper], -1).astype(np.float32)
    batch = replay.draw_batch(np.minimum(pair, np.float32(1 - 2**-24)))
    host = {name: np.array(value) for name, value in batch.items()}
    return Sample(
        keys=replay.ring.key[host["items"]],
        probability=host["probability"].astype(np.float64),
        arrays={name: host[name] for name in ("observation", *TIMED[1:], *UNTIMED)},
        version=host["version"].astype(np.float64),
        age_s=replay.age_s(host["time"]),
    )


class SampledDeviceReplay:
    """A `DeviceReplay` that also has `request_sample`, as the other storages have it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from seedbed.replay.client.device import DeviceReplay

        self._replay = DeviceReplay(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replay, name)

    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        """Draw a batch, and copy it to the host."""
        future: Future[Sample] = Future()
        future.set_result(device_sample(self._replay, uniform))
        return future
