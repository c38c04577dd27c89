"""Sequences of replay: overlapping windows of one long stream of time steps an environment.

Time step s of a stream is what arrived with observation s (frame, reward, flags) and the action
that was chosen for it. Chunk j brings the time steps jT .. jT+T-1. Sequence j ends with the last
of them and begins burn-in, lookahead and stack earlier, in the chunks before. Frames are nearly
all of the bytes, and are therefore stored once, with their chunk. The other few bytes of a time
step are stored with every sequence that contains it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.packed import Entry, PackedSpec
from seedbed.spec import FIRST, ArraySpec

# Arrays of a chunk that are time-major, [T or R, E, ...], and those that are [E, ...].
TIMED = ("frames", "flags", "reward", "action")
UNTIMED = ("previous_action", "state")


@dataclass(frozen=True)
class SequenceSpec:
    """Sizes of a sequence.

    Attributes:
        observation: A single frame.
        steps: T, the trained transitions of a sequence. Sequences begin T time steps apart.
        burn_in: Transitions before the trained ones, which only warm up the recurrent state.
        lookahead: Transitions after the trained ones, which only complete n-step targets.
        frame_stack: K, the frames that the network sees at once.
        state_size: S, floats of the recurrent state.
        environment: Name of the environment. A replay refuses sequences of another environment,
            whatever their sizes.
        actions: A, the number of actions of the environment.
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
    def timesteps(self) -> int:
        """R, the time steps of a sequence: its transitions and one more."""
        return self.burn_in + self.steps + self.lookahead + 1

    @property
    def frames(self) -> int:
        """F, the frames of a sequence: K-1 for the first stack, then one a time step."""
        return self.frame_stack - 1 + self.timesteps

    @property
    def predecessors(self) -> int:
        """P, the chunks before its own that a sequence uses."""
        return -(-self.frames // self.steps) - 1

    def arrays(self) -> dict[str, ArraySpec]:
        """Return what is stored of one sequence, by name."""
        return {
            "frames": ArraySpec((self.steps, *self.observation.shape), self.observation.dtype),
            "flags": ArraySpec((self.frames,), "uint8"),
            "reward": ArraySpec((self.timesteps,), "float32"),
            "action": ArraySpec((self.timesteps - 1,), "int32"),
            "previous_action": ArraySpec((), "int32"),
            "state": ArraySpec((self.state_size,), "float32"),
            "version": ArraySpec((), "float64"),
            "time": ArraySpec((), "float64"),
        }

    @staticmethod
    def from_json(tree: dict[str, Any]) -> "SequenceSpec":
        """Build a spec from its JSON object, in which JSON has made lists of tuples.

        Args:
            tree: The fields, as `dataclasses.asdict` returns them.
        """
        frame = tree["observation"]
        observation = _array_of(frame)
        if "entries" in frame:
            observation = PackedSpec.of(
                [Entry(e["name"], _array_of(e["array"]), e["categories"]) for e in frame["entries"]]
            )
        return SequenceSpec(**{**tree, "observation": observation})


def _array_of(tree: dict[str, Any]) -> ArraySpec:
    return ArraySpec(tuple(tree["shape"]), tree["dtype"])


def chunk_arrays(spec: SequenceSpec, environments: int) -> dict[str, ArraySpec]:
    """Return the arrays of a chunk, in the order of `InsertRequest.payload`.

    Args:
        spec: Sizes of a sequence.
        environments: E.
    """
    e, arrays = environments, spec.arrays()
    shapes = {name: (arrays[name].shape[0], e, *arrays[name].shape[1:]) for name in TIMED}
    shapes |= {name: (e, *arrays[name].shape) for name in UNTIMED}
    found = {name: ArraySpec(shape, arrays[name].dtype) for name, shape in shapes.items()}
    return {**found, "priority": ArraySpec((e,), "float32")}


@dataclass(eq=False)
class SequenceChunk:
    """E sequences that end at the same time step, and the T frames that are new, time-major.

    The arrays are never written to once the chunk has been handed on.
    """

    stream_id: int  # of the stream that the chunk belongs to; below 2^63
    chunk_index: int  # of the chunk in its stream: 0, 1, 2, ... without gaps
    frames: Any  # [T, E, *shape], the newest T of the sequence: an array, or `DeviceFrames`
    flags: NDArray[np.uint8]  # [F, E], bits of StepFlag
    reward: NDArray[np.float32]  # [R, E], that arrived with the time step's observation
    action: NDArray[np.int32]  # [R-1, E]
    previous_action: NDArray[np.int32]  # [E], before time step 0 of the sequence
    state: NDArray[np.float32]  # [E, S], before time step 0 of the sequence
    priority: NDArray[np.float32]  # [E], not negative
    version: float  # mean version of the parameters that acted

    @property
    def environments(self) -> int:
        """E."""
        return int(self.priority.shape[0])

    @property
    def steps(self) -> int:
        """New transitions of the chunk that are steps of an environment."""
        return int(np.count_nonzero((self.flags[-len(self.frames) :] & FIRST) == 0))


@dataclass(eq=False)
class Sample:
    """B sequences, drawn with replacement.

    Attributes:
        keys: [B] int64, to update priorities with.
        probability: [B] float64, with which each sequence was drawn.
        arrays: Time-major, named as a training step takes them: observation [F, B, *shape],
            flags [F, B], reward [R, B], action [R-1, B], previous_action [B], state [B, S].
        version: [B] float64, of the parameters that acted.
        age_s: [B] float64, seconds since each sequence was inserted.
    """

    keys: NDArray[np.int64]
    probability: NDArray[np.float64]
    arrays: dict[str, NDArray[Any]]
    version: NDArray[np.float64]
    age_s: NDArray[np.float64]


def describe_spec(spec: SequenceSpec, capacity: int | None = None) -> str:
    """Describe a spec in words, for logs and errors.

    Args:
        spec: Sizes of a sequence.
        capacity: Sequences; None leaves the number out.
    """
    many = "" if capacity is None else f"{capacity} "
    of = f"{spec.environment} ({spec.actions} actions), " if spec.environment else ""
    return (
        f"{many}sequences of {of}{spec.burn_in} + {spec.steps} + {spec.lookahead} steps of "
        f"{spec.observation}, frame stack {spec.frame_stack}, state {spec.state_size}"
    )


def format_bytes(size: float) -> str:
    """Format a number of bytes as MiB or GiB."""
    return f"{size / 2**30:.3g} GiB" if size >= 2**27 else f"{size / 2**20:.3g} MiB"
