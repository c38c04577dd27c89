"""What a replay takes, said at its start, and whether it fits."""

from __future__ import annotations

from pathlib import Path

from seedbed.replay.buffer import buffer_bytes
from seedbed.replay.mapped_files import files_bytes, gib, words
from seedbed.replay.sequence import SequenceSpec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.limits import usable_memory_bytes


def estimate(spec: SequenceSpec, capacity: int, directory: Path | None) -> str:
    """One sentence."""
    total = buffer_bytes(spec, capacity)
    if directory is None:
        return f"{words(spec, capacity)}: {gib(total)} of memory"
    disk = files_bytes(spec, capacity)
    return (
        f"{words(spec, capacity)}: {gib(disk)} in {directory}, "
        f"{gib(memory_bytes(spec, capacity, directory))} of memory and what the kernel caches"
    )


def memory_bytes(spec: SequenceSpec, capacity: int, directory: Path | None) -> int:
    """Memory that the kernel cannot take back, in bytes."""
    items = capacity * sum(array.row_bytes for array in spec.arrays().values())
    return buffer_bytes(spec, capacity) - (items if directory is not None else 0)


def check_memory(
    spec: SequenceSpec, capacity: int, directory: Path | None, limit: int | None = None
) -> None:
    """Whether it fits into `limit` bytes of memory; None: what this process may use.

    Raises:
        SeedbedError: CONFIG, with both numbers.
    """
    usable = usable_memory_bytes() if limit is None else limit
    needed = memory_bytes(spec, capacity, directory)
    if usable and needed > usable:
        item = max(1, needed // capacity)
        raise SeedbedError(
            ExitCode.CONFIG,
            f"{words(spec, capacity)} take {gib(needed)} of memory, and {gib(usable)} may be used: "
            f"hold at most {int(0.9 * usable / item)} sequences, or keep them in a directory",
        )
