"""Whole states that peers request of the training thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from seedbed.config import parse_experiment
from seedbed.services.learner.components import ParameterStore
from seedbed.services.learner.training.thread import TrainingThread
from seedbed.telemetry import Telemetry
from seedbed.telemetry.counters import Counters


def test_a_request_that_was_given_up_ends_nothing() -> None:
    """A peer that asked for the whole state and left ended a learner of an all-reduce."""
    telemetry = Telemetry(
        parse_experiment("name: toy\nenvironment: {id: Toy-v0}"), None, Counters()
    )
    quarantine: Any = None
    thread = TrainingThread(ParameterStore(), telemetry, lambda: None, quarantine)
    states: list[int] = []

    def state() -> dict[str, Any]:
        states.append(1)
        return {}

    components: Any = SimpleNamespace(trainer=SimpleNamespace(state=state))
    thread.request_state().cancel()
    waits = thread.request_state()
    thread.give_states(components)
    assert waits.result(0) == {}
    assert states == [1], "a state that nobody waits for is not made"
