"""A spec that only the first Hello vouches for, and the probe that comes before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seedbed.config import Experiment
from seedbed.services.learner.sessions import handshake
from seedbed.services.learner.sessions.handshake import check_first_spec, largest_message
from seedbed.services.learner.sessions.rejections import SpecMismatch
from seedbed.spec import ArraySpec, EnvironmentSpec
from tests.support.null_model import ACTIONS, NAME, OBSERVATION, null_learner
from tests.support.raw_wire import Refused, Stream, hello

SETTINGS = Experiment.model_validate({"name": "x", "environment": {"id": "x"}}).learner


def spec(*shape: int, actions: int = 2) -> EnvironmentSpec:
    return EnvironmentSpec("x", ArraySpec(shape, "uint8"), actions, 1)


def test_the_first_spec_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    check_first_spec(spec(210, 160, 3, actions=4096), SETTINGS)
    with pytest.raises(SpecMismatch, match=r"at most 524288 bytes.*1000000 bytes"):
        check_first_spec(spec(1_000_000), SETTINGS)
    with pytest.raises(SpecMismatch, match=r"at most 4096.*32768"):
        check_first_spec(spec(4, actions=32768), SETTINGS)
    monkeypatch.setattr(handshake, "usable_memory_bytes", lambda: 2**20)
    with pytest.raises(SpecMismatch, match="half of the memory"):
        check_first_spec(spec(210, 160, 3), SETTINGS)


def test_messages_are_bounded_by_the_spec() -> None:
    assert largest_message(spec(84, 84), SETTINGS) == 512 * 84 * 84 + 64 * 1024


def test_a_hello_waits_for_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with null_learner(tmp_path, monkeypatch) as learner:
        components: Any = learner.components
        components.probing = True
        with Stream(learner.address) as other, Stream(learner.address) as true:
            other.begin(hello(2, actions=ACTIONS + 1))
            true.begin(hello(2))
            components.fix_spec(EnvironmentSpec(NAME, OBSERVATION, ACTIONS, 1))
            components.probing = False
            with pytest.raises(Refused):
                other.read()
            message = true.read()
            assert message is not None
            assert message.WhichOneof("message") == "welcome"
