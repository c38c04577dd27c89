"""Keep TensorFlow's greetings out of the log: eight lines about CUDA and oneDNN a start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from services.learner.child_processes import process_environment

NOISE = (
    "All log messages before absl::InitializeLog() is called",
    "oneDNN custom operations are on",
    "Could not find cuda drivers on your machine",
    "failed call to cuInit",
    "oneDNN supports DT_UINT8 only on platforms with AVX-512",
)

# A process of its own reads the lines, so that the last words of one that crashes get through.
_FILTER = """
import sys
for line in sys.stdin.buffer:
    if not any(noise.encode() in line for noise in sys.argv[1:]):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""


@contextmanager
def without_greetings() -> Iterator[None]:
    """Drop the lines of `NOISE` that C++ writes to stderr meanwhile, and only those.

    TensorFlow writes them before it reads any of its settings.
    """
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _FILTER, *NOISE],
        stdin=subprocess.PIPE,
        env=process_environment(),
    )
    assert child.stdin is not None
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(child.stdin.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        child.stdin.close()
        child.wait(timeout=10)
