"""A cluster with one release, behind a `kubectl` that answers from a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubectl_stand_in import StandIn


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., StandIn]:
    """Makes the cluster, by values of the chart."""

    def made_of(**values: Any) -> StandIn:
        experiment = {"environment": {"id": "CartPole-v1"}}
        made = StandIn(tmp_path / "cluster", {"experiment": experiment, **values})
        monkeypatch.setenv("PATH", f"{made.folder / 'bin'}:{os.environ['PATH']}")
        return made

    return made_of
