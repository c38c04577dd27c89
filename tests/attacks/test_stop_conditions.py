"""Stop conditions that a peer or a cost meter makes up: the run ends by its own numbers alone."""

from __future__ import annotations

import io
import json
import math
import urllib.request
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from seedbed.config.run import Stop
from seedbed.gossip.membership import Membership
from seedbed.runs.stop import met_condition
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.learner.stop import RunStop
from seedbed.telemetry.cost_meter import CostMeterClient
from seedbed.telemetry.counters import Counters
from seedbed.v1 import gossip_pb2 as wire

NAN, INFINITE = math.nan, math.inf


def test_negative_returns_are_numbers_like_others() -> None:
    members = Membership(0, 2, 10.0)
    members.update(1, wire.Member(return_sum=-105.0, return_count=5))
    assert members.mean_return(lambda n: -21.0, 10) == -21.0


def test_a_comparison_with_nan_is_an_error() -> None:
    with pytest.raises(SeedbedError, match=r"stop\.dollars: expected a finite number.*nan"):
        met_condition(Stop(dollars=3), Counters(dollars=NAN), lambda _: None)
    assert met_condition(Stop(updates=3), Counters(dollars=NAN), lambda _: None) is None


@pytest.mark.parametrize(
    ("dollars", "rate"), [(NAN, 1.0), (INFINITE, 1.0), (-1.0, 1.0), (1.0, NAN)]
)
def test_a_meter_of_nonsense_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, dollars: float, rate: float
) -> None:
    answer = json.dumps({"dollars": dollars, "dollars_per_hour": rate}).encode()
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(answer))
    assert CostMeterClient("http://127.0.0.1:9/status").reading is None


# --- stop conditions -------------------------------------------------------------------------


def stop_of(stop: Stop, members: Membership, own: Counters, returns: Any = ()) -> RunStop:
    """RunStop of a learner with these counters and returns."""
    values = np.array(returns, np.float64)

    def mean(episodes: int) -> float | None:
        return float(values[-episodes:].mean()) if len(values) >= episodes else None

    recent = SimpleNamespace(values=lambda episodes: values[-episodes:])
    sessions = SimpleNamespace(mean_return=mean, recent_returns=recent)
    telemetry: Any = SimpleNamespace(
        counters=own, whole_counters=lambda: own, sessions=sessions, stop_condition=None
    )
    return RunStop(stop, telemetry, members)


@pytest.mark.parametrize(
    "over",
    [
        "pwned\n\x1b[2J",
        "stop.updates: 9 of 9",  # not configured here
        "stop.env_frames: 100 of 100",  # this learner counts fewer
        "stop.mean_return: 500 over 100 episodes, wanted 475",
        "stop.model_config: 1 of 1",
    ],
)
def test_a_peers_word_ends_no_run(over: str) -> None:
    """Any text ended a learner with exit code 0, and was its stop_reason."""
    members = Membership(0, 2, 10.0)
    stop = Stop(env_frames=100, mean_return=475, mean_return_episodes=4)
    run = stop_of(stop, members, Counters(env_frames=50, updates=20), [9.0, 10.0, 9.0, 10.0])
    members.update(1, wire.Member(over=over, env_frames=20, updates=20))
    assert run.check_conditions() is None
    assert run.reason is None


def test_the_reason_is_composed_here() -> None:
    members = Membership(0, 3, 10.0)
    run = stop_of(Stop(updates=100), members, Counters(updates=60))
    members.update(1, wire.Member(over="stop.updates: pwned \x1b[2J", updates=99))
    assert run.check_conditions() is None, "its own number contradicts it"
    members.update(2, wire.Member(over="", updates=100))
    members.update(1, wire.Member(over="learner 2: stop.updates: pwned \x1b[2J", updates=99))
    met = run.check_conditions()
    assert met is not None
    assert met.key == "updates"
    assert run.reason == met.text == "learner 1: stop.updates: 100 of 100"


def test_a_mean_return_that_a_peer_has_met_is_met_within_the_error_of_the_mean_here() -> None:
    """Episodes end between two heartbeats, so two learners never count the very same ones."""
    members = Membership(0, 2, 10.0)
    stop = Stop(mean_return=10, mean_return_episodes=8)
    members.update(1, wire.Member(return_sum=40.0, return_count=4))
    near = stop_of(stop, members, Counters(), [11.0, 8.0, 12.0, 8.0])
    far = stop_of(stop, members, Counters(), [9.0, 8.0, 9.0, 8.0])
    assert near.check_conditions() is None
    over = "stop.mean_return: 10.02 over 8 episodes, wanted 10"
    members.update(1, wire.Member(return_sum=40.0, return_count=4, over=over))
    assert far.check_conditions() is None
    met = near.check_conditions()
    assert met is not None
    assert met.key == "mean_return"


def test_more_episodes_than_are_averaged_do_not_count() -> None:
    members = Membership(0, 2, 10.0)
    members.update(1, wire.Member(return_sum=0.0, return_count=2**32 - 1))
    assert members.mean_return(lambda n: 10.0, 10) is None


# --- a second reading ------------------------------------------------------------------------


class Answers:
    """What the peers answer at their own addresses; the first call requests it."""

    def __init__(self, **answers: int) -> None:
        self.frames = answers
        self.requests = 0

    def answers(self) -> dict[int, wire.Member] | None:
        self.requests += 1
        if self.requests == 1:
            return None
        return {int(rank[1:]): wire.Member(env_frames=n) for rank, n in self.frames.items()}


def test_what_a_peer_states_ends_no_run_before_its_own_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One heartbeat of 10^12 frames ended a run with exit code 0, and again after a restart."""
    members = Membership(0, 3, 10.0)
    run = stop_of(Stop(env_frames=1000), members, Counters(env_frames=50))
    liar: Any = Answers(_1=60, _2=70)
    run.second_reading = liar
    members.update(1, wire.Member(iteration=10**6, env_frames=10**12))
    for _ in range(3):
        assert run.check_conditions() is None
    assert run.reason is None
    assert liar.requests == 3
    assert "the run goes on" in caplog.text
    assert "learner 1: 60 frames" in caplog.text


def test_what_the_answers_confirm_ends_the_run() -> None:
    members = Membership(0, 3, 10.0)
    members.update(2, wire.Member(env_frames=480))
    members.on_proof(2)  # and is gone
    run = stop_of(Stop(env_frames=1000), members, Counters(env_frames=50))
    true: Any = Answers(_1=470)
    run.second_reading = true
    members.update(1, wire.Member(env_frames=470))
    assert run.check_conditions() is None, "until they are there"
    met = run.check_conditions()
    assert met is not None
    assert met.text == "stop.env_frames: 1000 of 1000"


def test_what_a_learner_has_met_alone_needs_no_answer() -> None:
    members = Membership(0, 2, 10.0)
    run = stop_of(Stop(env_frames=1000), members, Counters(env_frames=1000))
    nobody: Any = Answers()
    run.second_reading = nobody
    assert run.check_conditions() is not None
    assert nobody.requests == 0
