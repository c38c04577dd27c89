"""`learner.device`: what is named must be there; `cpu` always is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.backends.missing_device import why_missing

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
PROGRAM = """
import sys
from seedbed.runtime.exit_codes import SeedbedError
from seedbed import backends
try:
    print(backends.use(sys.argv[1], device=sys.argv[2], precision=sys.argv[3]).devices())
except SeedbedError as error:
    print(error.code.name, error)
"""


@pytest.mark.slow_after(1)
@pytest.mark.backends
@pytest.mark.parametrize(
    ("device", "precision", "said", "why"),
    [
        ("cpu", "bfloat16", "['cpu:0']", ""),
        ("tpu", "float32", "BACKEND learner.device is 'tpu'", "there is no /dev/accel"),
        ("cpu", "tensorfloat32", "BACKEND learner.precision", "NVIDIA GPUs.*cpu:0.*choose float32"),
    ],
)
def test_what_is_named_is_used_or_refused(device: str, precision: str, said: str, why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, BACKEND, device, precision],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
    assert re.search(why, done.stdout)


def test_what_the_machine_shows_of_a_missing_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No device file, one of root's, no driver, or an image for another device."""
    assert why_missing("cpu", tmp_path) == why_missing("auto", tmp_path) == ""
    assert f"there is no {tmp_path}/nvidia[0-9]*: " in why_missing("gpu", tmp_path)
    (tmp_path / "vfio").mkdir()
    (tmp_path / "vfio" / "vfio").touch()
    assert "has no TPU" in why_missing("tpu", tmp_path), "that one every machine has"
    for name in ("vfio/0", "nvidia0"):
        (tmp_path / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        said = why_missing("tpu", tmp_path)
    assert f"user {os.getuid()} may not open {tmp_path}/vfio/0" in said
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    assert "LD_LIBRARY_PATH is '/somewhere'" in why_missing("gpu", tmp_path)
    assert "one for TPUs" in why_missing("tpu", tmp_path)
