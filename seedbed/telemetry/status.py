"""The status of a run, written to status.json and served over HTTP and gRPC."""

import json
import math
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from seedbed.runtime.files import atomic_write
from seedbed.runtime.limits import process_start_ticks
from seedbed.runtime.text import printable_texts
from seedbed.telemetry.busy import BusyClock

STATUS_FILE = "status.json"


class ProcessStatus(TypedDict):
    """Lasting identity of a process: its number, its start and its machine."""

    pid: int
    start_ticks: int | None
    host: str


class ThreadStatus(TypedDict):
    """Present state of one thread of the learner."""

    state: str
    state_s: float
    waiting_for: str | None


class TimeLeftStatus(TypedDict):
    """The nearest stop condition: when, and what the run costs until then."""

    seconds: float
    condition: str
    dollars: float


class LearnersStatus(TypedDict, total=False):
    """All learners of the run, as one of them sees them; empty of a single learner."""

    rank: int
    count: int
    topology: str
    alive: list[int]
    env_frames: int  # those of learners that have left, too
    left_env_frames: int


class SourceStatus(TypedDict):
    """Source from which a reader has a status; added by the reader."""

    path: NotRequired[str]
    address: NotRequired[str]
    age_s: float
    alive: bool | None


class SlotsStatus(TypedDict):
    """Slots of the learner; added by its gRPC service."""

    all: int
    free: int


class ChargedStatus(TypedDict):
    """What a run charges, in the sizes of the section `cost`."""

    cpus: float
    memory_gib: float
    accelerators: int
    metered: bool  # by a cost meter, which charges all pods of a release instead


class ProvenanceStatus(TypedDict):
    """What made the run, and what was changed in it; of the run's history."""

    starts: int
    version: str
    commit: str
    clean: bool | None
    command: list[str]
    python: str
    machine: str
    changes: list[str]  # of settings, at which frame


class RunStatus(TypedDict):
    """The status of one learner. Its keys are a file format and a wire format."""

    name: str
    run_dir: str | None
    environment: str
    agent: str
    state: str  # training, waiting, evaluating (the last evaluation) or finished
    waiting_for: str | None
    over: str | None
    stop_reason: str | None
    time: float
    interval_s: float
    process: ProcessStatus
    counters: dict[str, int | float]
    resumed_dollars: float  # that the process began with
    bill: str  # name of the cost meter's bill; "" without one
    earlier_dollars: float  # from before this bill
    charged: ChargedStatus
    numbers: dict[str, Any]
    scalars: dict[str, float]
    user_scalars: dict[str, float]
    bottleneck: dict[str, str]  # its part and the sentence
    threads: dict[str, ThreadStatus]
    eta: TimeLeftStatus | None
    stop: dict[str, Any]
    evaluation: dict[str, Any] | None
    learners: LearnersStatus
    provenance: ProvenanceStatus | None
    network_bytes: dict[str, int]  # by `PEER DIRECTION`
    policy_lag_by_step: list[float]  # [T] in updates; empty with replay
    discarded_by_reason: dict[str, int]
    stream_errors: dict[str, int]
    failing_outputs: list[str]
    slots: NotRequired[SlotsStatus]
    rows_read: NotRequired[bool]  # over HTTP, of a learner's first host: all of the ended run
    source: NotRequired[SourceStatus]


def this_process() -> ProcessStatus:
    """Return what names this process for good."""
    pid = os.getpid()
    return {"pid": pid, "start_ticks": process_start_ticks(pid), "host": socket.gethostname()}


def describe_threads(busy: Mapping[str, BusyClock]) -> dict[str, ThreadStatus]:
    """Return each thread's present state, and what it waits for."""
    described: dict[str, ThreadStatus] = {}
    for name, clock in busy.items():
        state, for_s = clock.state
        waiting_for = clock.waiting_for or None
        described[name] = {"state": state, "state_s": for_s, "waiting_for": waiting_for}
    return described


def plain(value: Any) -> Any:
    """Convert for JSON: NaN and infinities become null, NumPy's numbers plain ones.

    Args:
        value: Mappings, sequences, numbers, arrays and texts, nested.
    """
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


def write_status(run_dir: Path, status: RunStatus) -> None:
    """Replace the run directory's status.json as a whole.

    Raises:
        OSError: The file cannot be written; the old one then stays.
    """
    atomic_write(run_dir / STATUS_FILE, json.dumps(status, indent=1, allow_nan=False) + "\n")


def read_status(run_dir: Path) -> RunStatus:
    """Read the run directory's status.json, whose texts become printable.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no JSON, or no status.
    """
    status = printable_texts(json.loads((run_dir / STATUS_FILE).read_text()))
    missing = RunStatus.__required_keys__ - set(status if isinstance(status, dict) else ())
    if missing:
        raise ValueError(f"it is no status of a run: it lacks {min(missing)!r}")
    return cast(RunStatus, status)
