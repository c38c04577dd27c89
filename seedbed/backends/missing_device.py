"""Why a device that was asked for is not there."""

import ctypes
import os
from pathlib import Path

_FILES = {"gpu": ("nvidia[0-9]*",), "tpu": ("accel[0-9]*", "vfio/[0-9]*")}
_DRIVER = "libcuda.so.1"


def why_missing(device: str, dev: Path = Path("/dev")) -> str:
    """Return what this machine shows about a missing device; empty for nothing.

    Args:
        device: `gpu` or `tpu`; another one shows nothing.
        dev: folder of the device files.
    """
    patterns = _FILES.get(device, ())
    files = sorted(path for pattern in patterns for path in dev.glob(pattern))
    if not files:
        names = " or ".join(f"{dev}/{pattern}" for pattern in patterns)
        return names and f"there is no {names}: this machine or container has no {device.upper()}"
    closed = [path for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        return (
            f"user {os.getuid()} may not open {closed[0]}, which belongs to user "
            f"{closed[0].stat().st_uid}: run as that user (chart: learner.podSpec.securityContext)"
        )
    if device == "gpu" and not _loads(_DRIVER):
        folders = os.environ.get("LD_LIBRARY_PATH", "")
        return (
            f"the driver's {_DRIVER} cannot be loaded, LD_LIBRARY_PATH is {folders!r}: take the "
            "learner's image for GPUs, or add the driver's folder (GKE: /usr/local/nvidia/lib64)"
        )
    return f"{files[0]} is there: is the library of the backend one for {device.upper()}s?"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
