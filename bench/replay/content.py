"""Contents of the measured replay: noise, in the sizes of two papers."""

import numpy as np

from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.spec import ArraySpec


def atari(frame_stack: int = 4) -> SequenceSpec:
    """Return R2D2's sequences of 40 + 80 steps, 84 x 84 uint8 (Table 8 of the SEED paper)."""
    return SequenceSpec(
        ArraySpec((84, 84), "uint8"),
        steps=80,
        burn_in=40,
        frame_stack=frame_stack,
        state_size=1024,
    )


def transitions() -> SequenceSpec:
    """Return transitions of 57 floats ("Deep In-GPU Experience Replay", section 5)."""
    return SequenceSpec(ArraySpec((27,), "float32"), steps=1)


def chunk_of(
    spec: SequenceSpec, environments: int, number: int, random: np.random.Generator
) -> SequenceChunk:
    """Make a chunk of noise, of one endless stream."""
    e = environments
    frames = random.integers(0, 256, (spec.steps, e, *spec.observation.shape), np.uint8)
    return SequenceChunk(
        0,
        number,
        frames=frames.astype(spec.observation.dtype, copy=False),
        flags=np.zeros((spec.frames, e), np.uint8),
        reward=random.random((spec.timesteps, e), np.float32),
        action=np.zeros((spec.timesteps - 1, e), np.int32),
        previous_action=np.zeros(e, np.int32),
        state=np.zeros((e, spec.state_size), np.float32),
        priority=random.random(e, np.float32) + np.float32(0.1),
        version=0.0,
    )
