"""What replay holds: overlapping sequences of rows, cut out of one long stream an environment.

Row s of a stream is what arrived with observation s (frame, reward, flags) and the action that was
chosen for it. Block j brings the rows jT .. jT+T-1; sequence j ends with the last of them and
begins burn-in, lookahead and stack earlier, in the blocks before. Frames, which are nearly all of
the bytes, are therefore stored once; the few bytes of a row that are left are stored with every
sequence that has it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import ArraySpec

_FIRST = 8  # StepFlag of the wire


@dataclass(frozen=True)
class SequenceSpec:
    """The sizes of a sequence.

    Attributes:
        observation: a single frame.
        steps: T, transitions of a sequence that are trained on. Sequences begin T rows apart.
        burn_in: transitions before them, which only warm up the recurrent state.
        lookahead: transitions after them, which only complete n-step targets.
        frame_stack: K.
        state_size: S, of the recurrent state.
        environment: whose experience it is. Another one's is refused, whatever its sizes.
        actions: A, of that environment.
    """

    observation: ArraySpec
    steps: int
    burn_in: int = 0
    lookahead: int = 0
    frame_stack: int = 1
    state_size: int = 0
    environment: str = ""
    actions: int = 0

    @property
    def rows(self) -> int:
        """R, rows of a sequence: its transitions and one more."""
        return self.burn_in + self.steps + self.lookahead + 1

    @property
    def frames(self) -> int:
        """F, frames of a sequence: K-1 that the first stack needs, then one a row."""
        return self.frame_stack - 1 + self.rows

    @property
    def predecessors(self) -> int:
        """P, how many blocks before its own a sequence reaches into."""
        return -(-self.frames // self.steps) - 1

    def arrays(self) -> dict[str, ArraySpec]:
        """What is stored of one sequence, by name."""
        return {
            "frames": ArraySpec((self.steps, *self.observation.shape), self.observation.dtype),
            "flags": ArraySpec((self.frames,), "uint8"),
            "reward": ArraySpec((self.rows,), "float32"),
            "action": ArraySpec((self.rows - 1,), "int32"),
            "previous_action": ArraySpec((), "int32"),
            "state": ArraySpec((self.state_size,), "float32"),
            "version": ArraySpec((), "float64"),
            "time": ArraySpec((), "float64"),
        }

    def to_json(self) -> dict[str, Any]:
        """As a file or a message keeps it."""
        return asdict(self)

    @staticmethod
    def from_json(tree: dict[str, Any]) -> SequenceSpec:
        """From `to_json`, after JSON made lists of tuples."""
        frame = tree["observation"]
        return SequenceSpec(
            **{**tree, "observation": ArraySpec(tuple(frame["shape"]), frame["dtype"])}
        )


@dataclass(eq=False)
class SequenceChunk:
    """E sequences that end at the same row, and the frames that are new with them, time-major.

    Nobody writes to it once it has been handed on.
    """

    chain: int  # names the stream of blocks that this one belongs to; below 2^63
    number: int  # of the block in its chain: 0, 1, 2, ... without gaps
    frames: NDArray[Any]  # [T, E, *shape], the newest T of the sequence
    flags: NDArray[np.uint8]  # [F, E], bits of StepFlag
    reward: NDArray[np.float32]  # [R, E], of the row's observation
    action: NDArray[np.int32]  # [R-1, E]
    previous_action: NDArray[np.int32]  # [E], the one before the sequence's row 0
    state: NDArray[np.float32]  # [E, S], before the sequence's row 0
    priority: NDArray[np.float32]  # [E], not negative
    version: float  # mean parameter version that acted

    @property
    def environments(self) -> int:
        """E."""
        return int(self.priority.shape[0])

    @property
    def steps(self) -> int:
        """New transitions of the block that are steps of an environment."""
        return int(np.count_nonzero((self.flags[-len(self.frames) :] & _FIRST) == 0))

    def columns(self, which: slice) -> SequenceChunk:
        """The block of some of its environments."""
        timed = ("frames", "flags", "reward", "action")
        rows = ("previous_action", "state", "priority")
        return replace(
            self,
            **{name: getattr(self, name)[:, which] for name in timed},
            **{name: getattr(self, name)[which] for name in rows},
        )


@dataclass(eq=False)
class Sample:
    """B sequences, drawn with replacement.

    Attributes:
        keys: [B] int64, to give new priorities to.
        probability: [B] float64, of having been drawn.
        arrays: time-major, named as `training.train_function` takes them: observation
            [F, B, *shape], flags [F, B], reward [R, B], action [R-1, B], previous_action [B],
            state [B, S].
        version: [B] float64, the parameters that acted.
        age_s: [B] float64, seconds since it was inserted.
    """

    keys: NDArray[np.int64]
    probability: NDArray[np.float64]
    arrays: dict[str, NDArray[Any]]
    version: NDArray[np.float64]
    age_s: NDArray[np.float64]
