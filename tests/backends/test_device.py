"""`learner.device`: what is named must be there; `cpu` always is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
PROGRAM = """
import sys
from seedbed.runtime.exit_codes import SeedbedError
from seedbed import backends
try:
    print(backends.use(sys.argv[1], device=sys.argv[2]).devices())
except SeedbedError as error:
    print(error.code.name, error)
"""


@pytest.mark.backends
@pytest.mark.parametrize(("device", "said"), [("cpu", "['cpu:0']"), ("tpu", "BACKEND")])
def test_what_is_named_is_used_or_refused(device: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, BACKEND, device],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
    if said == "BACKEND":
        assert "learner.device is 'tpu'" in done.stdout
