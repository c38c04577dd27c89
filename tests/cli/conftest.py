"""Fixtures of the commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from seedbed.deploy import follow as deploy_follow
from tests.support.api_server import api_server
from tests.support.deploy_programs import DOCKER, HELM, KUBECTL, Programs, pod


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    with api_server() as server:
        made = Programs(tmp_path, server)
        for name, text in (("helm", HELM), ("kubectl", KUBECTL), ("docker", DOCKER)):
            made.write(name, text)
        made.pods([pod("pong-vtrace-learner-0", ready=True)])
        made.status(sessions=2)
        (tmp_path / "events").write_text('{"items": []}')
        monkeypatch.setattr(deploy_follow, "_INTERVAL_S", 0.02)
        monkeypatch.setenv("PATH", f"{made.path}:{os.environ['PATH']}")
        monkeypatch.setenv("KUBECONFIG", str(server.file))
        yield made
