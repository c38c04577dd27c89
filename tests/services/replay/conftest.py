"""Ways to reach shards."""

from __future__ import annotations

import pytest

from tests.support.shard_process import ShardProcess


@pytest.fixture(params=["shared memory", "tcp"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How learners reach the shards of a test."""
    monkeypatch.setattr(ShardProcess, "over_tcp", request.param == "tcp")
    return str(request.param)
