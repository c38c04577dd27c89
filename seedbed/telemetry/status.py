"""status.json: what the run is doing, for people (`seedbed status`) and scripts."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.runtime.files import atomic_write
from seedbed.runtime.limits import process_start_ticks
from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.eta import Eta

STATUS_FILE = "status.json"


def this_process() -> dict[str, Any]:
    """Names this process for good: its number, when it started, and its machine."""
    pid = os.getpid()
    return {"pid": pid, "start_ticks": process_start_ticks(pid), "host": socket.gethostname()}


def describe_threads(
    busy: Mapping[str, BusyClock], numbers: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each thread's fractions, what it does now, for how long, and what it waits for."""
    described = {}
    for name, clock in busy.items():
        state, for_s = clock.state
        described[name] = {
            "busy": numbers.get(f"busy_{name}"),
            "blocked": numbers.get(f"blocked_{name}"),
            "state": state,
            "state_s": for_s,
            "waiting_for": clock.waiting_for or None,
        }
    return described


def describe_end(end: Eta | None, dollars_per_hour: float) -> dict[str, Any] | None:
    """The nearest stop condition: when, and what it costs until then."""
    if end is None:
        return None
    return {
        "seconds": end.seconds,
        "condition": end.condition,
        "dollars": end.seconds / 3600 * dollars_per_hour,
    }


def describe_bottleneck(limit: Bottleneck) -> dict[str, str]:
    """As an object with both parts."""
    return {"part": limit.word, "sentence": limit.sentence}


def plain(value: Any) -> Any:
    """The same for JSON: NaN and infinities become null, NumPy's numbers plain ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def write_status(run_dir: Path, status: Mapping[str, Any]) -> None:
    """Replace the run directory's status.json as a whole.

    Raises:
        OSError: when it cannot be written; the old one then stays.
    """
    atomic_write(run_dir / STATUS_FILE, json.dumps(status, indent=1, allow_nan=False) + "\n")
