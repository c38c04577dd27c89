"""The two ends of a measured wire in processes of their own: a null learner, and its clients."""

import socket
from pathlib import Path
from typing import Any

from bench.child import Child
from bench.plan import Plan


def free_port() -> int:
    """Return a port of this machine that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def address_of(way: str, folder: Path, name: str) -> str:
    """Return an address for a process of this machine."""
    return f"127.0.0.1:{free_port()}" if way == "tcp" else f"unix:{folder}/{name}.sock"


def null_learner(plan: Plan, path: str, name: str, listen: str, **options: Any) -> Child:
    """Start a learner without a model for the experiment at `path`."""
    return Child(
        "null_learner:MeasuredLearner", plan.folder, f"learner-{name}",
        path=path, listen=listen, **options,
    )  # fmt: skip


def clients(
    plan: Plan, path: str, name: str, address: str, streams: int, num_envs: int, **options: Any
) -> Child:
    """Start clients with so many streams, each of `num_envs` environments."""
    return Child(
        "stream_clients:Clients", plan.folder, f"to-{name}",
        experiment=path, address=address, streams=streams, num_envs=num_envs, **options,
    )  # fmt: skip
