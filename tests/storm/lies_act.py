"""Lies of an actor's credential: to the learner, about its steps and unrolls."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from seedbed.rpc.hello import HELLO_KEY
from seedbed.v1 import inference_pb2 as wire
from tests.storm.calls import HOLD_S, Call, Entry
from tests.storm.judge_act import FIRST, TERMINATED, hello, step
from tests.storm.lies import Lie, refused
from tests.storm.streams import INVALID

ACT = "/seedbed.v1.Inference/Act"
# Within the bounds, or at them: 1e6 of rewards, observations and logits.
EDGES = (0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 1e6, -1e6)
STEPS, LENGTH = 40, 8  # of a stream; of an unroll, as in the storm's experiment


def edges(chance: random.Random, count: int) -> bytes:
    return struct.pack(f"<{count}f", *(chance.choice(EDGES) for _ in range(count)))


class ActLies:
    """Lies about steps.

    Args:
        entry: the learner.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def lies(self) -> list[Lie]:
        return [
            Lie("steps that nobody reads the answers of", self._unread),
            Lie("streams that leave at once", self._leave),
            Lie("first steps alone", self._first),
            Lie("a step sent twice", self._twice),
            Lie("NaN and infinite rewards", self._not_finite),
            Lie("half a message", self._half),
            Lie("slots that are not used", self._slots),
            Lie("rewards and observations at their bounds", self._edges, spoils=True),
        ]

    def _stream(self, environments: int) -> Any:
        said = hello(environments, incarnation=7)
        return self._entry.call(ACT, (HELLO_KEY, said))

    def _steps(self, call: Call, messages: Iterator[bytes]) -> None:
        """Send steps, each after the answer to the one before."""
        call.answer()  # Welcome
        for message in messages:
            call.send(message)
            if call.answer() is None:
                return

    def _unread(self, chance: random.Random) -> str:
        e = chance.choice((1, 16))
        with self._stream(e) as call:
            call.send(step(0, e))
            time.sleep(HOLD_S)
        return ""

    def _leave(self, chance: random.Random) -> str:
        """The steps of an unroll that is not whole are counted all the same."""
        for _ in range(10):
            with self._stream(16) as call:
                self._steps(call, iter([step(i, 16) for i in range(chance.randrange(LENGTH))]))
        return ""

    def _first(self, chance: random.Random) -> str:
        """Every transition into a first step is masked, whatever its reward."""
        flags = bytes([FIRST])
        with self._stream(1) as call:
            rewarded = (step(i, reward=edges(chance, 1), flags=flags) for i in range(STEPS))
            self._steps(call, rewarded)
        return ""

    def _twice(self, chance: random.Random) -> str:
        at = chance.randrange(5)
        with self._stream(1) as call:
            self._steps(call, iter([step(i) for i in range(at + 1)]))
            call.send(step(at))
            return refused(call.end(), INVALID)

    def _not_finite(self, chance: random.Random) -> str:
        wrong = chance.choice((float("nan"), float("inf"), 3e38))
        with self._stream(1) as call:
            self._steps(call, iter([step(0)]))
            call.send(step(1, reward=struct.pack("<f", wrong)))
            return refused(call.end(), INVALID)

    def _half(self, chance: random.Random) -> str:
        said = hello(1, incarnation=7)
        size = chance.choice((1 << 20, 4 << 20, 60 << 20))
        self._entry.half_messages(ACT, size, 3, (HELLO_KEY, said))
        return ""

    def _slots(self, chance: random.Random) -> str:
        with self._stream(16) as one, self._stream(16) as other:
            for call in (one, other):
                call.answer()
            time.sleep(chance.uniform(0, HOLD_S))
        return ""

    def _edges(self, chance: random.Random) -> str:
        with self._stream(4) as call:
            self._steps(call, (self._edge_step(chance, i) for i in range(STEPS)))
        return ""

    def _edge_step(self, chance: random.Random, sequence: int) -> bytes:
        flags = bytes(
            [FIRST, TERMINATED][sequence % 2] if sequence % 4 < 2 else 0 for _ in range(4)
        )
        reward = bytes(16) if sequence % 4 == 0 else edges(chance, 4)
        return step(sequence, 4, reward=reward, observation=edges(chance, 16), flags=flags)


class UnrollLies:
    """Lies about unrolls whose actions an actor says that it chose (IMPALA).

    Args:
        entry: the learner.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def lies(self) -> list[Lie]:
        return [
            Lie("unrolls that nobody reads the answers of", self._unread),
            Lie("NaN logits", self._not_finite),
            Lie("half a message", self._half),
            Lie("logits at their bounds", self._logits, spoils=True),
            Lie("rewards of unrolls at their bounds", self._rewards, spoils=True),
        ]

    def _hello(self, environments: int) -> bytes:
        return hello(environments, incarnation=7, inference=1, unroll_length=LENGTH)

    def _stream(self, environments: int) -> Any:
        return self._entry.call(ACT, (HELLO_KEY, self._hello(environments)))

    def _unroll(self, sequence: int, logits: bytes, **changes: Any) -> bytes:
        """Return an unroll of four environments."""
        count = LENGTH + (sequence == 0)
        flags = np.zeros((count, 4), np.uint8)
        if sequence == 0:
            flags[0] = FIRST
        fields: dict[str, Any] = {
            "sequence": sequence,
            "observation": np.full((count, 4, 4), 0.1, np.float32).tobytes(),
            "reward": np.where(flags == FIRST, 0, 1).astype(np.float32).tobytes(),
            "flags": flags.tobytes(),
            "environment_seconds": bytes(4 * count),
            "wait_seconds": bytes(4 * count),
            "action": bytes(4 * 4 * LENGTH),
            "behaviour": [logits],
        }
        unroll = wire.Unroll(**{**fields, **changes})
        return wire.ActorMessage(unroll=unroll).SerializeToString()

    def _send(self, call: Call, message: bytes) -> bool:
        call.send(message)
        return self._parameters(call)

    def _parameters(self, call: Call) -> bool:
        """Read whole parameters; return whether the stream goes on."""
        while (reply := call.answer()) is not None:
            parameters = wire.LearnerMessage.FromString(reply)
            if parameters.HasField("parameters") and not parameters.parameters.more:
                return True
        return False

    def _play(self, unrolls: Iterator[bytes]) -> None:
        with self._stream(4) as call:
            if self._parameters(call):
                all(self._send(call, one) for one in unrolls)

    def _sequences(self) -> list[int]:
        return [0, *(LENGTH * i + 1 for i in range(1, STEPS // LENGTH))]

    def _logits(self, chance: random.Random) -> str:
        """The action that was taken is nearly impossible, or certain, by what the actor says."""
        row = chance.choice(((-1e6, 1e6), (1e6, -1e6), (-0.0, 1e-45), (-1e6, -1e6)))
        logits = struct.pack("<2f", *row) * 4 * LENGTH
        self._play(self._unroll(i, logits) for i in self._sequences())
        return ""

    def _rewards(self, chance: random.Random) -> str:
        def unroll(sequence: int) -> bytes:
            count = 4 * (LENGTH + (sequence == 0))
            return self._unroll(
                sequence,
                bytes(8 * 4 * LENGTH),
                reward=edges(chance, count),
                observation=edges(chance, 4 * count),
            )

        self._play(map(unroll, self._sequences()))
        return ""

    def _unread(self, _: random.Random) -> str:
        with self._stream(4) as call:
            call.send(self._unroll(0, bytes(8 * 4 * LENGTH)))
            time.sleep(HOLD_S)
        return ""

    def _not_finite(self, chance: random.Random) -> str:
        wrong = chance.choice((float("nan"), float("-inf"), 3e38))
        with self._stream(4) as call:
            if not self._parameters(call):
                return ""
            call.send(self._unroll(0, struct.pack("<2f", wrong, 0.0) * 4 * LENGTH))
            return refused(call.end(), INVALID)

    def _half(self, chance: random.Random) -> str:
        size = chance.choice((1 << 20, 4 << 20, 60 << 20))
        self._entry.half_messages(ACT, size, 3, (HELLO_KEY, self._hello(1)))
        return ""
