"""Insert into mapped files until killed.

Run it as `python -m tests.support.replay_writer DIRECTORY CAPACITY FIRST`.

Prints each chunk's number once it is stored.
"""

from __future__ import annotations

import sys
from pathlib import Path

from seedbed.replay.mapped_files import open_buffer
from seedbed.replay.sequence import SequenceSpec
from seedbed.spec import ArraySpec
from tests.support.replay_content import chunk

# Frames large enough that most kills come in the middle of writing them.
SPEC = SequenceSpec(ArraySpec((64, 64), "uint8"), steps=4, burn_in=3, frame_stack=2, state_size=3)
ENVIRONMENTS = 16


def main(directory: str, capacity: str, first: str) -> None:
    """Insert until killed."""
    buffer = open_buffer(Path(directory), SPEC, int(capacity), 0.5)
    stream_id = int(first)
    made = [chunk(SPEC, stream_id, number, ENVIRONMENTS) for number in range(6)]
    print("open", flush=True)
    number = 0
    while True:
        for item in made:  # again and again: what counts is that it is whole
            item.stream_id = stream_id + 256 * 256 * (number // 6)
            buffer.add(item)
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
