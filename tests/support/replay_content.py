"""Chunks whose every byte follows from stream, environment and row, and a check of samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.packed import Entry, PackedSpec
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec
from seedbed.spec import ArraySpec

SPEC = SequenceSpec(
    ArraySpec((6, 5), "uint8"), steps=4, burn_in=3, lookahead=1, frame_stack=2, state_size=3
)
PACKED = replace(
    SPEC,
    observation=PackedSpec.of(
        [
            Entry("picture", ArraySpec((6, 5), "uint8")),
            Entry("numbers", ArraySpec((2,), "float32")),
            Entry("key", ArraySpec((), "int32"), 7),
        ]
    ),
)
_FIELDS = {"reward": 1, "action": 2, "previous_action": 3, "state": 4}


def numbers(spec: SequenceSpec, stream_id: int, environment: int, row: int) -> NDArray[Any]:
    """The frame of a row of a stream. Its first bytes say which one it is."""
    size = int(np.prod(spec.observation.shape))
    seed = np.random.SeedSequence([stream_id, environment, row + 1000])
    frame = np.random.Generator(np.random.PCG64(seed)).integers(0, 256, size, np.uint8)
    frame[:8] = [stream_id % 256, stream_id // 256, environment, row & 255, row >> 8 & 255, 1, 2, 3]
    return frame.reshape(spec.observation.shape)


def small(name: str, stream_id: int, environment: int, row: int) -> float:
    """A number of a row that is not its frame: exact in float32."""
    mixed = stream_id * 7919 + environment * 104729 + row * 1299709 + _FIELDS[name] * 15485863
    return float(mixed % 65521)


def chunk(
    spec: SequenceSpec,
    stream_id: int,
    number: int,
    environments: int = 1,
    priority: float | NDArray[np.float32] = 1.0,
) -> SequenceChunk:
    """Block `number` of a stream. Its newest rows are number*T .. number*T + T-1."""
    end = (number + 1) * spec.steps
    every = range(environments)
    return SequenceChunk(
        stream_id,
        number,
        frames=np.stack(
            [
                np.stack([numbers(spec, stream_id, e, row) for e in every])
                for row in range(end - spec.steps, end)
            ]
        ),
        flags=np.array(
            [[row % 7 == 0 for _ in every] for row in range(end - spec.frames, end)], np.uint8
        )
        * np.uint8(8),
        reward=_rows("reward", stream_id, environments, end - spec.timesteps, end, np.float32),
        action=_rows("action", stream_id, environments, end - spec.timesteps, end - 1, np.int32),
        previous_action=_rows(
            "previous_action",
            stream_id,
            environments,
            end - spec.timesteps,
            end - spec.timesteps + 1,
            np.int32,
        )[0],
        state=np.array(
            [
                [small("state", stream_id, e, end + i) for i in range(spec.state_size)]
                for e in every
            ],
            np.float32,
        ).reshape(environments, spec.state_size),
        priority=np.broadcast_to(np.asarray(priority, np.float32), (environments,)).copy(),
        version=float(number),
    )


def _rows(
    name: str, stream_id: int, environments: int, start: int, stop: int, dtype: Any
) -> NDArray[Any]:
    rows = [
        [small(name, stream_id, e, row) for e in range(environments)] for row in range(start, stop)
    ]
    return np.array(rows, dtype).reshape(stop - start, environments)


def check_whole(spec: SequenceSpec, sample: Sample) -> list[tuple[int, int, int]]:
    """Check that each sequence is one of `chunk`; return stream id, environment and chunk index."""
    found = []
    arrays = sample.arrays
    assert arrays["observation"].shape == (spec.frames, len(sample.keys), *spec.observation.shape)
    for column in range(len(sample.keys)):
        frames = arrays["observation"][:, column]
        head = frames[-1].ravel()[:8].astype(int)
        stream_id, environment = int(head[0] + 256 * head[1]), int(head[2])
        number = int(sample.version[column])
        end = (number + 1) * spec.steps
        assert (head[3] + 256 * head[4]) == end - 1
        expected = [numbers(spec, stream_id, environment, r) for r in range(end - spec.frames, end)]
        np.testing.assert_array_equal(frames, expected)
        flags = [8 * (row % 7 == 0) for row in range(end - spec.frames, end)]
        np.testing.assert_array_equal(arrays["flags"][:, column], flags)
        for name, stop in (("reward", end), ("action", end - 1)):
            values = [
                small(name, stream_id, environment, row)
                for row in range(end - spec.timesteps, stop)
            ]
            np.testing.assert_array_equal(arrays[name][:, column], values)
        first = end - spec.timesteps
        assert arrays["previous_action"][column] == small(
            "previous_action", stream_id, environment, first
        )
        state = [small("state", stream_id, environment, end + i) for i in range(spec.state_size)]
        np.testing.assert_array_equal(arrays["state"][column], state)
        found.append((stream_id, environment, number))
    return found
