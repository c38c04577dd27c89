"""Metrics, status and probes of a replay shard."""

from __future__ import annotations

from pathlib import Path

from tests.support.processes import free_port
from tests.support.replay_content import SPEC
from tests.support.shard_process import ALPHA, ShardProcess
from tests.support.sharded_replay import WAIT_S, evenly, fill, replay_of


def test_metrics_and_status(tmp_path: Path) -> None:
    (tmp_path / "shard").mkdir()
    shard = ShardProcess(tmp_path / "shard")
    shard.metrics_port = free_port()
    try:
        shard.start().listening()
        assert shard.get("/healthz") == "ok\n"
        assert shard.get("/readyz") == "ok\n"
        with replay_of([shard]) as replay:
            fill(replay, range(3), chunks=4)
            replay.request_sample(evenly(25)).result(WAIT_S)
            lines = shard.get("/metrics").splitlines()
            for line in (
                "capacity 64.0", "size 36.0", "sampleable 18.0", "inserts_total 36.0",
                "samples_total 25.0", "sample_age_seconds_count 25.0", "stale_updates_total 0.0",
                "corrupt_total 0.0", "learners 1.0", "total_priority 18.0",
            ):  # fmt: skip
                assert f"seedbed_replay_shard_{line}" in lines
            status = shard.status()
            assert (status["size"], status["exponent"]) == (36, ALPHA)
            assert status["spec"]["steps"] == SPEC.steps
    finally:
        shard.end()
