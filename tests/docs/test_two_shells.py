"""The two shells and the OpenSSL lines of docs/several-machines.md, and its systemd units."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.users_environment import users_environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/several-machines.md").read_text()
UNITS = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
TLS = ("--tls-release", "cartpole.lab")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_a_learner_and_an_actor_with_the_pages_certificates(tmp_path: Path) -> None:
    lines = re.search(r"<!-- test: openssl -->\n\n((?:    .*\n)+)", PAGE)
    assert lines
    subprocess.run(
        ["bash", "-e"], input=lines[1], text=True, cwd=tmp_path, check=True, capture_output=True
    )
    environment = {**users_environment(), "PYTHONPATH": str(ROOT)}

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "seedbed.cli.main", *words]
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True
        )

    learner = ("learner", "cartpole-vtrace", "--listen", "localhost:0", "--tls", "certs/learner")
    short = ("--set", "stop.env_frames=3000", "--set", "evaluation.at_end=false")
    with start(*learner, *TLS, *short) as one:
        assert one.stderr
        try:
            heard = (re.search(r"localhost:(\d+)", line) for line in one.stderr)
            port = next(found[1] for found in heard if found)
            actor = ("actor", "cartpole-vtrace", "--learner", f"localhost:{port}")
            with start(*actor, "--tls", "certs/actor", *TLS) as two:
                words = one.communicate(timeout=300)[1]
                assert two.wait(60) == 0
        finally:
            one.kill()
    assert one.returncode == 0, words


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
