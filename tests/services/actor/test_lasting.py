"""A learner that stays away for ten minutes is worth a dozen lines."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest

from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.actor import loop
from seedbed.services.actor.lasting import Lasting
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from tests.support.echo_actor import EchoVectorEnv
from tests.support.processes import free_port


def test_what_lasts_is_logged_less_and_less() -> None:
    lasting = Lasting()
    lines = [second for second in range(0, 600, 5) if lasting.is_due("no route", second)]
    assert lines == [0, 5, 10, 20, 40, 80, 160, 320]
    assert lasting.is_due("refused", 601), "another cause"
    assert not lasting.is_due("no route", 602)
    lasting.end()
    assert not lasting.is_known
    assert lasting.is_due("no route", 1)


def test_numbers_make_no_other_cause() -> None:
    lasting = Lasting()
    assert lasting.is_due("late by 3 s", 3)
    assert not lasting.is_due("late by 4 s", 4)


def test_an_actor_without_a_learner_writes_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(loop, "Attempts", partial(loop.Attempts, first_s=0.001, longest_s=0.01))
    metrics, address = ActorMetrics(), f"127.0.0.1:{free_port()}"
    group = ActorLoop(lambda: EchoVectorEnv(), address, "a", 5.0, 2.0, metrics)
    with pytest.raises(SeedbedError, match="no answer from"):
        asyncio.run(group.run())
    lines = [line for line in caplog.messages if "; trying again in" in line]
    assert metrics.reconnects > 20
    assert 1 <= len(lines) <= 15
