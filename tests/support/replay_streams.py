"""Streams of chunks whose every number shows its place, and the sequences that they make."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.sequence import SequenceChunk, SequenceSpec

FIRST = 8


class Stream:
    """One stream of E environments. Row s of environment e has frames, rewards and actions that
    follow from (stream_id, e, s) alone.
    """

    def __init__(self, spec: SequenceSpec, stream_id: int, environments: int) -> None:
        self.spec, self.stream_id, self.environments = spec, stream_id, environments
        self.chunk_index = 0

    def frame(self, e: int, row: int) -> NDArray[Any]:
        spec = self.spec.observation
        count = int(np.prod(spec.shape))
        if row < 0:
            return np.zeros(spec.shape, spec.dtype)
        values = np.random.default_rng((self.stream_id, e, row)).integers(0, 256, count)
        return values.astype(spec.dtype).reshape(spec.shape)

    def reward(self, e: int, row: int) -> float:
        return 0.0 if row < 0 else self.stream_id + e / 100 + row / 10_000

    def action(self, e: int, row: int) -> int:
        return -1 if row < 0 else (7 * self.stream_id + 3 * e + row) % 11

    def flags(self, e: int, row: int) -> int:
        return FIRST if row >= 0 and (row + e) % 9 == 0 else 0

    def state(self, e: int, row: int) -> NDArray[np.float32]:
        value = 0.0 if row < 0 else self.reward(e, row) + 0.5
        return np.full(self.spec.state_size, value, np.float32)

    def sequence(self, e: int, number: int) -> dict[str, Any]:
        """Return what a sample of sequence `number` of environment e must contain."""
        spec = self.spec
        start = (number + 1) * spec.steps - spec.timesteps
        rows = range(start, start + spec.timesteps)
        seen = range(start - spec.frame_stack + 1, start + spec.timesteps)
        return {
            "observation": np.stack([self.frame(e, row) for row in seen]),
            "flags": np.array([self.flags(e, row) for row in seen], np.uint8),
            "reward": np.array([self.reward(e, row) for row in rows], np.float32),
            "action": np.array([self.action(e, row) for row in rows][:-1], np.int32),
            "previous_action": np.int32(self.action(e, start - 1)),
            "state": self.state(e, start),
        }

    def chunk(self, priority: Any = None) -> SequenceChunk:
        """Make the next chunk."""
        spec, number, every = self.spec, self.chunk_index, range(self.environments)
        made = [self.sequence(e, number) for e in every]
        newest = {name: [one[name] for one in made] for name in made[0]}
        self.chunk_index += 1
        if priority is None:
            priority = np.ones(self.environments)
        return SequenceChunk(
            stream_id=self.stream_id,
            chunk_index=number,
            frames=np.stack([one[-spec.steps :] for one in newest["observation"]], 1),
            flags=np.stack(newest["flags"], 1),
            reward=np.stack(newest["reward"], 1),
            action=np.stack(newest["action"], 1),
            previous_action=np.array(newest["previous_action"], np.int32),
            state=np.stack(newest["state"]),
            priority=np.asarray(priority, np.float32),
            version=float(number),
        )
