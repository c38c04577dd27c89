"""Construction of a buffer in this process's memory or in files, once it is sure to fit."""

import logging
from pathlib import Path

from seedbed.replay.buffer import SequenceBuffer, buffer_bytes
from seedbed.replay.mapped_files import files_bytes, open_buffer
from seedbed.replay.sequence import SequenceSpec, describe_spec, format_bytes
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.limits import usable_memory_bytes
from seedbed.runtime.shortage import cure

log = logging.getLogger(__name__)


def make_local_buffer(
    subject: str,
    spec: SequenceSpec,
    capacity: int,
    exponent: float,
    directory: Path | None,
    limit: int | None = None,
) -> SequenceBuffer:
    """Build a buffer that fits: empty, or with the contents of its files.

    Args:
        subject: Words before the sizes in the log.
        spec: Sizes of a sequence.
        capacity: Sequences.
        exponent: α, not negative.
        directory: Folder of the files; None: the buffer is in memory.
        limit: Bytes of memory that may be used; None: what this process may use.

    Raises:
        SeedbedError: CONFIG: too little memory, with both numbers. REPLAY_FILES: the files cannot
            be used.
    """
    what, memory = describe_spec(spec, capacity), buffer_bytes(spec, capacity)
    if directory is not None:
        # The kernel can reclaim what lies in files.
        memory -= capacity * sum(array.row_bytes for array in spec.arrays().values())
    usable = usable_memory_bytes() if limit is None else limit
    if usable and memory > usable:
        item = max(1, memory // capacity)
        raise ConfigError(
            f"{what} take {format_bytes(memory)} of memory, and {format_bytes(usable)} may be "
            f"used: hold at most {int(0.9 * usable / item)} sequences, or keep them in a directory"
        )
    takes = f"{format_bytes(memory)} of memory"
    if directory is None:
        log.info("%s %s: %s", subject, what, takes)
        try:
            return SequenceBuffer(spec, capacity, exponent)
        except MemoryError as error:
            raise ConfigError(
                f"{what} take {takes}, which this process does not get ({error}): hold fewer "
                f"sequences, or keep them in a directory; {cure(error)}"
            ) from error
    disk = f"{format_bytes(files_bytes(spec, capacity))} in {directory}"
    log.info("%s %s: %s, %s and what the kernel caches", subject, what, disk, takes)
    return open_buffer(directory, spec, capacity, exponent)
