"""Warnings about peers."""

from __future__ import annotations

import logging
import time

import pytest

from seedbed.runtime.peer_log import A_MINUTE, FOREIGN, PeerLog, limit_foreign


def test_a_flood_of_one_kind_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    seconds = 0.0
    log = PeerLog(logging.getLogger("test"), lambda: seconds)
    for number in range(1000):
        log.warning("NOISE", "refused %d", number)
    log.warning("OTHER", "another kind")
    assert caplog.messages == [*(f"refused {n}" for n in range(A_MINUTE)), "another kind"]
    caplog.clear()
    seconds = 61.0
    log.warning("NOISE", "again")
    left_out = 1000 - A_MINUTE
    assert caplog.messages == [f"{left_out} more like this (NOISE) were left out", "again"]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_flood_by_way_of_a_library_is_limited(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that nobody awaits was a traceback of asyncio for each message of a peer."""
    seconds = [1000.0]
    logger = logging.getLogger(name)
    monkeypatch.setattr(logger, "filters", [])
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    for _ in range(2):  # once is enough
        limit_foreign()
    for number in range(1000):
        logger.error("Task was destroyed: %d", number)
    assert len(caplog.messages) == A_MINUTE
    caplog.clear()
    seconds[0] += 61.0
    logger.error("again")
    assert caplog.messages == [f"({1000 - A_MINUTE} records were left out) again"]
