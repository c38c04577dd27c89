"""Streams of random rows cut into chunks, and a replay so simple that one sees it is right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.spec import ArraySpec

Array = NDArray[Any]
FRAME = ArraySpec((3,), "uint8")
# 41 of these and more are copied sequence by sequence, small ones all at once.
LARGE_FRAME = ArraySpec((10, 10), "uint8")

SPECS = {
    "r2d2": SequenceSpec(LARGE_FRAME, steps=80, burn_in=40, frame_stack=1, state_size=3),
    "r2d2-stack": SequenceSpec(LARGE_FRAME, steps=80, burn_in=40, frame_stack=4, state_size=3),
    "dqn": SequenceSpec(ArraySpec((4,), "float32"), steps=1),
    "dqn-n3": SequenceSpec(ArraySpec((4,), "float32"), steps=1, lookahead=2),
    "dqn-image": SequenceSpec(ArraySpec((70, 60), "uint8"), steps=1, lookahead=1, frame_stack=4),
    "long-burn-in": SequenceSpec(FRAME, steps=4, burn_in=9, frame_stack=3, state_size=2),
    "one-chunk": SequenceSpec(FRAME, steps=5, burn_in=4, state_size=2),
    "all": SequenceSpec(FRAME, steps=3, burn_in=5, lookahead=2, frame_stack=2, state_size=1),
}


class Stream:
    """One stream: rows of E environments, made up as they are asked for."""

    def __init__(self, spec: SequenceSpec, stream_id: int, environments: int, seed: int) -> None:
        self.spec, self.stream_id, self.environments = spec, stream_id, environments
        self.chunk_index = 0  # of the next chunk
        self._random = np.random.default_rng(seed)
        self._lead = spec.frames + 1  # rows of nothing before the first one
        self._rows: dict[str, list[Array]] = {
            name: [self._row(name) for _ in range(self._lead)]
            for name in ("frames", "flags", "reward", "action")
        }

    def _row(self, name: str) -> Array:
        e, random = self.environments, self._random
        if name == "frames":
            frame = random.integers(0, 256, (e, *self.spec.observation.shape))
            return frame.astype(self.spec.observation.dtype)
        if name == "flags":
            return (8 * (random.random(e) < 0.2)).astype(np.uint8)
        if name == "reward":
            return random.normal(size=e).astype(np.float32)
        return random.integers(0, 9, e).astype(np.int32)

    def chunk(self) -> tuple[SequenceChunk, list[dict[str, Array]]]:
        """The next chunk, and each of its sequences whole, as a sample gives them."""
        spec, e = self.spec, self.environments
        for name, rows in self._rows.items():
            rows += [self._row(name) for _ in range(spec.steps)]
        newest = {name: np.stack(rows[-spec.frames :]) for name, rows in self._rows.items()}
        whole = {
            "observation": newest["frames"],
            "flags": newest["flags"],
            "reward": newest["reward"][-spec.timesteps :],
            "action": newest["action"][-spec.timesteps : -1],
            "previous_action": self._rows["action"][-spec.timesteps - 1],
            "state": self._random.normal(size=(e, spec.state_size)).astype(np.float32),
        }
        chunk = SequenceChunk(
            stream_id=self.stream_id,
            chunk_index=self.chunk_index,
            frames=newest["frames"][-spec.steps :].copy(),
            priority=self._random.uniform(0.1, 2, e).astype(np.float32),
            version=float(self._random.random()),
            **{name: whole[name].copy() for name in whole if name != "observation"},
        )
        self.chunk_index += 1
        lead = ("previous_action", "state")
        sequences = [
            {name: array[i] if name in lead else array[:, i] for name, array in whole.items()}
            for i in range(e)
        ]
        return chunk, sequences


class Reference:
    """Keeps every sequence whole, as a dict, the newest `capacity` of them in a list.

    A sequence can be drawn while its chunk and the P before it, of one environment and without a
    gap in their numbers, are all in the list.
    """

    def __init__(self, spec: SequenceSpec, capacity: int) -> None:
        self.capacity = capacity
        reach = spec.frames  # rows; its chunk brings `steps` of them, and each one before as many
        self.reach = 0
        while reach > spec.steps:
            reach, self.reach = reach - spec.steps, self.reach + 1
        self.items: list[dict[str, Any]] = []
        self._next_key = 0
        # By stream id: generation, newest chunk index, E.
        self._generation: dict[int, tuple[int, int, int]] = {}

    def add(self, chunk: SequenceChunk, sequences: list[dict[str, Array]]) -> None:
        """Insert a chunk."""
        generation, number, environments = self._generation.get(chunk.stream_id, (-1, -2, 0))
        if (chunk.chunk_index, len(sequences)) != (number + 1, environments):
            generation += 1
        self._generation[chunk.stream_id] = (generation, chunk.chunk_index, len(sequences))
        for i, sequence in enumerate(sequences):
            place = (chunk.stream_id, generation, i, chunk.chunk_index)
            self.items.append(
                {"key": self._next_key, "place": place, "priority": chunk.priority[i],
                 "version": chunk.version, **sequence}
            )  # fmt: skip
            self._next_key += 1
        del self.items[: -self.capacity]

    def sampleable(self) -> dict[int, dict[str, Any]]:
        """What can be drawn, by key."""
        places = {item["place"] for item in self.items}
        return {
            item["key"]: item
            for item in self.items
            if all((*item["place"][:3], item["place"][3] - k) in places
                   for k in range(self.reach + 1))
        }  # fmt: skip


class Traffic:
    """Streams that begin, go on by turns, lose a chunk now and then, and end."""

    def __init__(self, spec: SequenceSpec, seed: int) -> None:
        self.spec = spec
        self.random = np.random.default_rng(seed)
        self.streams: list[Stream] = []
        self._stream_count = 0

    def next(self) -> tuple[SequenceChunk, list[dict[str, Array]]]:
        """The next chunk that arrives."""
        random = self.random
        if not self.streams or (len(self.streams) < 3 and random.random() < 0.1):
            self._stream_count += 1
            environments = int(random.integers(1, 5))
            seed = int(random.integers(2**31))
            self.streams.append(Stream(self.spec, 10 + self._stream_count, environments, seed))
        at = int(random.integers(len(self.streams)))
        stream = self.streams[at]
        if random.random() < 0.05:
            stream.chunk()  # is lost: a gap in the numbers
        if random.random() < 0.05:
            self.streams.pop(at)
        return stream.chunk()
