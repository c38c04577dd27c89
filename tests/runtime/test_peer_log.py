"""Warnings about peers."""

from __future__ import annotations

import logging

import pytest

from seedbed.runtime.peer_log import A_MINUTE, PeerLog


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
