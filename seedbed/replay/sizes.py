"""Memory and disk of a replay: the estimate at its start, and the check that it fits."""

from __future__ import annotations

from pathlib import Path

from seedbed.replay.buffer import buffer_bytes
from seedbed.replay.mapped_files import files_bytes
from seedbed.replay.sequence import SequenceSpec, describe_spec, format_bytes
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.limits import usable_memory_bytes


def estimate(spec: SequenceSpec, capacity: int, directory: Path | None) -> str:
    """Describe the memory and disk of a replay in one sentence.

    Args:
        spec: Sizes of a sequence.
        capacity: Sequences.
        directory: Folder of its files; None: the replay is in memory.
    """
    what = describe_spec(spec, capacity)
    memory = format_bytes(memory_bytes(spec, capacity, directory))
    if directory is None:
        return f"{what}: {memory} of memory"
    disk = format_bytes(files_bytes(spec, capacity))
    return f"{what}: {disk} in {directory}, {memory} of memory and what the kernel caches"


def memory_bytes(spec: SequenceSpec, capacity: int, directory: Path | None) -> int:
    """Return the memory that the kernel cannot reclaim, in bytes.

    Args:
        spec: Sizes of a sequence.
        capacity: Sequences.
        directory: Folder of its files; None: the replay is in memory.
    """
    items = capacity * sum(array.row_bytes for array in spec.arrays().values())
    return buffer_bytes(spec, capacity) - (items if directory is not None else 0)


def check_memory(
    spec: SequenceSpec, capacity: int, directory: Path | None, limit: int | None = None
) -> None:
    """Check that a replay fits into memory.

    Args:
        spec: Sizes of a sequence.
        capacity: Sequences.
        directory: Folder of its files; None: the replay is in memory.
        limit: Bytes that may be used; None: what this process may use.

    Raises:
        SeedbedError: CONFIG, with both numbers.
    """
    usable = usable_memory_bytes() if limit is None else limit
    needed = memory_bytes(spec, capacity, directory)
    if usable and needed > usable:
        item = max(1, needed // capacity)
        raise SeedbedError(
            ExitCode.CONFIG,
            f"{describe_spec(spec, capacity)} take {format_bytes(needed)} of memory, and "
            f"{format_bytes(usable)} may be used: hold at most {int(0.9 * usable / item)} "
            "sequences, or keep them in a directory",
        )
