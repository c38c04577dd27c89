"""Texts of peers: no forged line in a log, no escape for a terminal, no megabyte, no flood."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from seedbed.runtime.peer_log import A_MINUTE
from seedbed.v1 import inference_pb2 as wire
from tests.support.null_model import null_learner
from tests.support.raw_wire import Refused, Stream
from tests.support.waiting import wait_for

FORGED = "x\n2026-01-01 00:00:00,000 I seedbed.learner: FORGED \x1b[2J" + "y" * 100_000
LONGEST_LINE = 2_000
IN_HELLO = FORGED[:4_000]  # metadata has at most 8 KiB


def test_an_actor_forges_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with null_learner(tmp_path, monkeypatch) as learner:
        assert learner.server.address is not None
        with Stream(learner.server.address) as actor:
            actor.handshake(actor=IN_HELLO)
            actor.send(wire.ActorMessage(goodbye=wire.Goodbye(reason=FORGED)))
            assert actor.read() is None
        for _ in range(A_MINUTE + 5):
            with Stream(learner.server.address) as actor:
                with pytest.raises(Refused) as refused:
                    actor.handshake(environment=IN_HELLO)
                assert refused.value.details.isprintable()
                assert len(refused.value.details) < LONGEST_LINE
        errors = learner.telemetry.sessions.stream_errors
        wait_for(lambda: errors["environment"] == A_MINUTE + 5, "all are counted")
    # gRPC's poller logs as "asyncio" where an earlier test's loop is closed.
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("seedbed")]
    assert any("FORGED" in line for line in lines)
    assert all(line.isprintable() and len(line) < LONGEST_LINE for line in lines)
    assert sum(line.startswith("refused") for line in lines) == A_MINUTE
