"""The accelerator of each learner or run, where several share a machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Variables with which a process is shown some of the machine's accelerators.
_GPU, _TPU = "CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"
# Those of each `learner.device`.
_PLATFORMS = {"auto": (_GPU, _TPU), "gpu": (_GPU,), "tpu": (_TPU,)}


@dataclass(frozen=True)
class RankPlace:
    """Where a learner computes.

    Attributes:
        text: the device, for the log.
        learners: learners of this machine that share the device.
        environment: variables for the learner's process.
    """

    text: str
    learners: int
    environment: dict[str, str] = field(default_factory=dict)


def place_of_rank(
    rank: int,
    count: int,
    device: str,
    environ: Mapping[str, str] | None = None,
    dev: Path = Path("/dev"),
) -> RankPlace:
    """Return the place of a learner: accelerator `rank` modulo the number of accelerators.

    Args:
        rank: number of the learner, from 0.
        count: learners of this machine.
        device: `learner.device`.
        environ: variables of this process, which may name fewer accelerators than there are.
        dev: folder of the device files.
    """
    environ = os.environ if environ is None else environ
    platforms = _PLATFORMS.get(device, ())
    for variable in platforms:
        found = _accelerators(variable, environ, dev)
        if not found:
            continue
        name = found[rank % len(found)]
        sharing = len(range(rank % len(found), count, len(found)))
        environment = {variable: name}
        if variable == _TPU and len(found) > 1:
            # A process otherwise waits for those of the machine's other chips.
            environment |= {
                "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
                "TPU_PROCESS_BOUNDS": "1,1,1",
            }
        kind = "GPU" if variable == _GPU else "TPU chip"
        text = f"{kind} {name} of {len(found)}" + (f", shared by {sharing}" * (sharing > 1))
        return RankPlace(text, sharing, environment)
    return RankPlace("no accelerator" if platforms else "CPU", count)


def count_devices(
    device: str, environ: Mapping[str, str] | None = None, dev: Path = Path("/dev")
) -> int:
    """Return the number of accelerators that learners of this machine can have; 0 without one.

    Args:
        device: `learner.device`.
        environ: As for `place_of_rank`.
        dev: As for `place_of_rank`.
    """
    environ = os.environ if environ is None else environ
    found = (_accelerators(variable, environ, dev) for variable in _PLATFORMS.get(device, ()))
    return next((len(names) for names in found if names), 0)


def _accelerators(variable: str, environ: Mapping[str, str], dev: Path) -> list[str]:
    """Return the names of the accelerators that this process may use."""
    if variable in environ:
        return [name.strip() for name in environ[variable].split(",") if name.strip()]
    patterns = ("nvidia[0-9]*",) if variable == _GPU else ("accel[0-9]*", "vfio/[0-9]*")
    files = [path for pattern in patterns for path in dev.glob(pattern)]
    return [str(number) for number in range(len(files))]
