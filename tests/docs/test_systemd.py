"""Systemd accepts the units of docs/several-machines.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.source_imports import ROOT

PAGE = (ROOT / "docs/several-machines.md").read_text()
UNITS = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert len(UNITS) == 2
    files = []
    for name, text in zip(("learner.service", "actor@.service"), UNITS, strict=True):
        # The program and the user are of the reader's machine.
        text = re.sub(r"/srv/seedbed/.venv/bin/seedbed", shutil.which("true") or "", text)
        path = tmp_path / name
        path.write_text(text.replace("User=seedbed", "User=root"))
        files.append(str(path))
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
