"""`make test` reports the failures of both backends."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.source_imports import ROOT


@pytest.mark.parametrize("target", ["test", "test-slow", "test-learning"])
@pytest.mark.parametrize("failing", ["tensorflow", "jax", "none"])
def test_both_backends_are_tested_and_either_fails_the_target(
    target: str, failing: str, tmp_path: Path
) -> None:
    runner = tmp_path / "pytest"
    runner.write_text(
        f'#!/bin/sh\necho "$SEEDBED_TEST_BACKEND"\n[ "$SEEDBED_TEST_BACKEND" != {failing} ]\n'
    )
    runner.chmod(0o755)
    command = ["make", "--silent", "--old-file=.venv/.installed-dev", target, f"PYTEST={runner}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["tensorflow", "jax"]
    assert (done.returncode == 0) == (failing == "none"), done.stderr
