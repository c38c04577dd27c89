"""What is done to the runs of `tests.observability.break_runs`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from tests.observability.break_runs import Run


def park(run: Run) -> None:
    """Take learner and actor to zero, as somebody does with `kubectl scale`."""
    for component in ("actor", "learner"):
        run.containers[component].end()


def fill(run: Run) -> None:
    """Take all that is free on the volume of the run."""
    with suppress(OSError), (run.folder / "run" / "filler").open("wb", 0) as file:
        while True:
            file.write(bytes(4096))


def freeze(run: Run) -> None:
    """Let every write to the volume of the run wait."""
    subprocess.run(["fsfreeze", "-f", str(run.folder / "run")], check=True)


def wait(**seconds: float) -> Callable[[Run], None]:
    """Return an event from which each step of `environment` or `training` takes that long."""

    def write(run: Run) -> None:
        for component, value in seconds.items():
            (run.folder / f"{component}_s").write_text(str(value))

    return write


def short_certificate(folder: Path) -> Path:
    """Write a certificate of which a tenth of the lifetime is left, and return its folder."""
    folder.mkdir()
    authority, now = trustme.CA(), datetime.now(UTC)
    made = authority.issue_cert(
        "localhost", not_before=now - timedelta(hours=9), not_after=now + timedelta(hours=1)
    )
    (folder / "tls.key").write_bytes(made.private_key_pem.bytes())
    (folder / "tls.crt").write_bytes(made.cert_chain_pems[0].bytes())
    (folder / "ca.crt").write_bytes(authority.cert_pem.bytes())
    return folder


def deny(run: Run) -> None:
    """Let every call of the meter to the API server fail, and no frame arrive any more."""
    run.is_denied = True
    run.containers["actor"].send(signal.SIGSTOP)


def damage(run: Run) -> None:
    """Kill a shard, flip bits in the file of its observations, and take another shard away."""
    run.containers["replay-0"].send(signal.SIGKILL)
    largest = max((run.folder / "replay-0").rglob("*.bin"), key=lambda file: file.stat().st_size)
    with largest.open("r+b", 0) as file:
        for place in range(0, largest.stat().st_size, 64):
            file.seek(place)
            byte = file.read(1)
            file.seek(place)
            file.write(bytes([byte[0] ^ 255]))
    run.containers["replay-1"].end(signal.SIGKILL)


def no_node(name: str) -> Callable[[Run], None]:
    """Return an event that gives a container no node."""
    return lambda run: setattr(run.containers[name], "has_node", False)


def kill(name: str) -> Callable[[Run], None]:
    """Return an event that kills a container, as the kernel does for lack of memory."""
    return lambda run: run.containers[name].send(signal.SIGKILL)
