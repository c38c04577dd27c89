"""Let a file move the wall clock of one process.

The environment variable STORM_CLOCK names the folder of the files, and the PID names the file.
"""

import os
import time

_FOLDER = os.environ.get("STORM_CLOCK")
_time, _time_ns = time.time, time.time_ns


def _offset_s() -> float:
    try:
        with open(f"{_FOLDER}/{os.getpid()}", encoding="ascii") as file:  # noqa: PTH123
            return float(file.read())
    except (OSError, ValueError):
        return 0.0


if _FOLDER:
    time.time = lambda: _time() + _offset_s()
    time.time_ns = lambda: _time_ns() + int(_offset_s() * 1e9)
