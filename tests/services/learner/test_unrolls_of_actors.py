"""Unrolls whose actions the actor chose: each step is as if it came alone, or is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seedbed.config import parse_experiment
from seedbed.numbers import Bounds
from seedbed.rpc.step_codec import Step
from seedbed.services.learner.sessions.rejections import InvalidStep
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.unrolls_of_actors import UnrollReader
from seedbed.services.learner.unrolls.unroll import SessionUnroll, UnrollSpec
from seedbed.spec import FIRST, TERMINATED, ArraySpec, EnvironmentSpec
from seedbed.telemetry import Counters, Telemetry
from seedbed.v1 import inference_pb2 as wire

SPEC = EnvironmentSpec("Toy-v0", ArraySpec((2, 3), "uint8"), actions=4, action_repeat=2)
T, E, S = 5, 3, 2
UNROLL = UnrollSpec(SPEC.observation, T, 3, S, {"logits": ArraySpec((4,), "float32")})
NEWEST = 9


def make_session() -> tuple[Session, Telemetry]:
    telemetry = Telemetry(
        parse_experiment("name: toy\nenvironment: {id: Toy-v0}"), None, Counters()
    )
    slots = np.arange(E, dtype=np.int32)
    return Session(SPEC, slots, UNROLL, telemetry.sessions, Bounds()), telemetry


class Story:
    """Random steps and outputs of E environments, whose episodes end now and then."""

    def __init__(self, steps: int) -> None:
        random = np.random.default_rng(4)
        ended = random.random((steps, E)) < 0.3
        first = np.concatenate([np.ones((1, E), bool), ended[:-1]])
        self.flags = np.where(first, FIRST, np.where(ended, TERMINATED, 0)).astype(np.uint8)
        # A first step that had "ended" has not, so the next one is in the same episode.
        for t in range(1, steps):
            self.flags[t] = np.where(self.flags[t - 1] == TERMINATED, FIRST, self.flags[t])
            wrong = (self.flags[t] == FIRST) & (self.flags[t - 1] != TERMINATED)
            self.flags[t][wrong] = 0
        self.observation = random.integers(0, 256, (steps, E, 2, 3)).astype(np.uint8)
        self.reward = random.normal(size=(steps, E)).astype(np.float32)
        self.action = random.integers(0, 4, (steps, E)).astype(np.int32)
        self.logits = random.normal(size=(steps, E, 4)).astype(np.float32)
        self.state = random.normal(size=(steps, E, S)).astype(np.float32)

    def unroll(self, start: int) -> wire.Unroll:
        """The message whose first action is for step `start`."""
        steps = slice(start + 1 if start else 0, start + T + 1)
        count = steps.stop - steps.start
        return wire.Unroll(
            sequence=steps.start,
            observation=self.observation[steps].tobytes(),
            reward=self.reward[steps].tobytes(),
            flags=self.flags[steps].tobytes(),
            environment_seconds=np.full(count, 0.25, np.float32).tobytes(),
            wait_seconds=np.full(count, 0.5, np.float32).tobytes(),
            action=self.action[start : start + T].tobytes(),
            behaviour=[self.logits[start : start + T].tobytes()],
            state=self.state[start].tobytes(),
            version=start,
        )


def test_unrolls_equal_those_of_steps_that_come_alone() -> None:
    story = Story(3 * T + 1)
    session, counted = make_session()
    reader = UnrollReader(session, SPEC, UNROLL)
    blocks = [reader.read(story.unroll(number * T), 3 * T) for number in range(3)]

    alone, expected = make_session()
    wanted = []
    for t in range(3 * T + 1):
        reward, flags = story.reward[t].tobytes(), story.flags[t].tobytes()
        block = alone.receive(Step(t, story.observation[t].tobytes(), reward, flags, 0.25, 0.5))
        if block is not None:
            wanted.append(block)
        version = t // T * T
        alone.set_outputs(story.action[t], {"logits": story.logits[t]}, version, story.state[t])
    assert len(blocks) == len(wanted) == 3
    for ours, theirs in zip(blocks, wanted, strict=True):
        assert isinstance(ours, SessionUnroll)
        assert isinstance(theirs, SessionUnroll)
        for name in ("observation", "flags", "reward", "action", "previous_action", "version",
                     "state"):  # fmt: skip
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
        np.testing.assert_array_equal(ours.behaviour["logits"], theirs.behaviour["logits"])
    for each in (counted, expected):
        each.tick()
    assert counted.whole_counters().env_frames == expected.whole_counters().env_frames
    assert counted.whole_counters().episodes == expected.whole_counters().episodes > 0


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a gap": ({"sequence": 7}, "sequence", "6", "7"),
    "parameters of the future": ({"version": NEWEST + 1}, "version", "at most 9", "10"),
    "a step too few": ({"flags": bytes((T - 1) * E)}, "flags", "15 bytes", "12 bytes"),
    "frames that are cut": ({"observation": bytes(89)}, "observation", "90 bytes", "89 bytes"),
    "rewards of a step": ({"reward": bytes(4 * E)}, "reward", "60 bytes", "12 bytes"),
    "no times": ({"wait_seconds": b""}, "wait_seconds", "20 bytes", "0 bytes"),
    "a time that is none": (
        {"wait_seconds": floats(0, 0, np.nan, 0, 0)}, "wait_seconds", "seconds", "nan",
    ),
    "an action too few": ({"action": bytes(4 * E * T - 4)}, "action", "60 bytes", "56 bytes"),
    "an action that is none": (
        {"action": np.full((T, E), 4, np.int32).tobytes()}, "action", "4 actions", "action 4 for",
    ),
    "a negative action": (
        {"action": np.full((T, E), -1, np.int32).tobytes()}, "action", "4 actions", "action -1 for",
    ),
    "no logits": ({"behaviour": []}, "behaviour", "logits", "0 arrays"),
    "logits of fewer actions": ({"behaviour": [bytes(180)]}, "logits", "240 bytes", "180 bytes"),
    "logits that are none": (
        {"behaviour": [floats(*[np.nan] * (T * E * 4))]}, "logits", "finite", "nan",
    ),
    "a state of another network": ({"state": bytes(4)}, "state", "24 bytes", "4 bytes"),
    "a state that is infinite": ({"state": floats(*[np.inf] * 6)}, "state", "finite", "inf"),
    "a reward that is none": (
        {"reward": floats(*[0.0] * 14, np.inf)}, "reward", "finite", "inf",
    ),
    "flags that are none": ({"flags": bytes([*[0] * 14, 64])}, "flags", "below 16", "64"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_unroll_names_both_sides(case: str) -> None:
    changes, field, expected, received = REFUSED[case]
    story = Story(2 * T + 1)
    story.flags[1:] = 0
    session, telemetry = make_session()
    reader = UnrollReader(session, SPEC, UNROLL)
    reader.read(story.unroll(0), NEWEST)
    message = story.unroll(T)
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(message, name)[:]
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    with pytest.raises(InvalidStep) as refusal:
        reader.read(message, NEWEST)
    assert refusal.value.field == field
    assert expected in refusal.value.expected
    assert received in refusal.value.received
    assert refusal.value.advice
    # What was written of it is discarded with the stream, and nothing is lost.
    session.close()
    telemetry.tick()
    counters = telemetry.whole_counters()
    assert counters.env_frames == T * E * 2 + counters.discarded_frames
