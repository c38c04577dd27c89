"""Blocks for replay: each brings the newest T rows of a lock-step group, and closes E sequences.

Unlike an unroll, a block waits until its last row's outputs are there: the priority of its
sequences needs them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.protocol import SequenceWindow
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, ArraySpec


@dataclass(frozen=True)
class SequencePlan:
    """What a session's writer needs.

    Attributes:
        spec: sizes of a sequence.
        behaviour: what acting leaves for the priority, by name, for one row.
        priority: gives the priorities [E] of new sequences.
    """

    spec: SequenceSpec
    behaviour: Mapping[str, ArraySpec]
    priority: Callable[[SequenceWindow], NDArray[np.float32]]

    @property
    def observation(self) -> ArraySpec:
        """A single frame."""
        return self.spec.observation

    @property
    def frame_stack(self) -> int:
        """K."""
        return self.spec.frame_stack

    def bytes_per_environment(self) -> int:
        """Host memory of one environment's column of a block, in bytes."""
        behaviour = sum(array.row_bytes for array in self.behaviour.values())
        return (
            self.spec.steps * self.spec.observation.row_bytes
            + (self.spec.frames + 1) * (1 + 4 + 4 + behaviour)
            + 4 * self.spec.state_size
        )

    def writer(self, environments: int) -> SequenceWriter:
        """Writes the blocks of one session."""
        return SequenceWriter(self, environments)


class SequenceWriter:
    """Writes one session's rows; see `UnrollWriter`, whose methods these are.

    The small arrays hold a sequence's rows and one before them, so that the newest T are at the
    end; the frames are only the newest T.
    """

    def __init__(self, plan: SequencePlan, environments: int) -> None:
        self._plan, self._spec = plan, plan.spec
        self._environments = environments
        self._chain = secrets.randbits(63)
        self._number = 0  # of the block that is being written
        self._rows = 0  # of it, that have been written
        self._length = self._spec.frames + 1
        self._last_action = np.full(environments, -1, np.int32)
        self._states: dict[int, NDArray[np.float32]] = {}  # by the block whose sequences need them
        self._frames = self._new_frames()
        self._small = self._new_small()
        self._version = 0.0

    def _new_frames(self) -> NDArray[Any]:
        spec = self._spec.observation
        return np.empty((self._spec.steps, self._environments, *spec.shape), spec.dtype)

    def _new_small(self) -> dict[str, NDArray[Any]]:
        lead = (self._length, self._environments)
        small: dict[str, NDArray[Any]] = {
            "flags": np.zeros(lead, np.uint8),
            "reward": np.zeros(lead, np.float32),
            "action": np.full(lead, -1, np.int32),
        }
        for name, array in self._plan.behaviour.items():
            small[f"behaviour/{name}"] = np.zeros((*lead, *array.shape), array.dtype)
        return small

    @property
    def _at(self) -> int:
        """Where the newest row is in the small arrays."""
        return self._length - self._spec.steps + self._rows - 1

    def add_row(
        self,
        observation: NDArray[Any],  # [E, *shape]
        reward: NDArray[np.float32],  # [E]
        flags: NDArray[np.uint8],  # [E]
    ) -> SequenceChunk | None:
        """Write the next row; return the block that was full before it, if one was."""
        block = self._hand_on() if self._rows == self._spec.steps else None
        self._rows += 1
        at = self._at
        self._frames[self._rows - 1] = observation
        self._small["flags"][at] = flags
        self._small["reward"][at] = reward
        return block

    def _hand_on(self) -> SequenceChunk:
        spec, small = self._spec, self._small
        rows = slice(self._length - spec.timesteps, None)  # of the sequence, in the small arrays
        flags = small["flags"][rows]
        window = SequenceWindow(
            trained=spec.steps,
            action=small["action"][rows],
            reward=small["reward"][rows],
            terminated=(flags & TERMINATED) != 0,
            life_lost=(flags & LIFE_LOST) != 0,
            first=(flags & FIRST) != 0,
            behaviour={name: small[f"behaviour/{name}"][rows] for name in self._plan.behaviour},
        )
        block = SequenceChunk(
            stream_id=self._chain,
            chunk_index=self._number,
            frames=self._frames,
            flags=small["flags"][1:],
            reward=window.reward,
            action=window.action[:-1],
            previous_action=small["action"][self._length - spec.timesteps - 1],
            state=self._states.pop(self._number, self._no_state()),
            priority=self._plan.priority(window),
            version=self._version / spec.steps,
        )
        self._number += 1
        self._rows, self._version = 0, 0.0
        # New memory: whoever holds the block keeps it whole.
        self._frames, self._small = self._new_frames(), self._new_small()
        for name, array in small.items():
            self._small[name][: -spec.steps] = array[spec.steps :]
        return block

    def _no_state(self) -> NDArray[np.float32]:
        return np.zeros((self._environments, self._spec.state_size), np.float32)

    @property
    def observation(self) -> NDArray[Any]:
        """The newest row's observation [E, *shape]; never written to again."""
        row: NDArray[Any] = self._frames[self._rows - 1]
        return row

    @property
    def flags(self) -> NDArray[np.uint8]:
        """The newest row's flags [E]."""
        row: NDArray[np.uint8] = self._small["flags"][self._at]
        return row

    @property
    def reward(self) -> NDArray[np.float32]:
        """The newest row's reward [E]."""
        row: NDArray[np.float32] = self._small["reward"][self._at]
        return row

    @property
    def previous_action(self) -> NDArray[np.int32]:
        """The actions [E] given for the row before the newest; -1 before the first."""
        return self._last_action

    @property
    def _begins(self) -> int | None:
        """The block whose sequences begin with the newest row, if one's do."""
        row = self._number * self._spec.steps + self._rows - 1
        blocks, rest = divmod(row + self._spec.timesteps, self._spec.steps)
        return blocks - 1 if rest == 0 else None

    @property
    def needs_state(self) -> bool:
        """Whether the newest row begins sequences, which keep the recurrent state before it."""
        return self._spec.state_size > 0 and self._begins is not None

    def set_outputs(
        self,
        action: NDArray[np.int32],  # [E]
        behaviour: Mapping[str, NDArray[Any]],  # [E, ...] each
        version: int,
        state: NDArray[np.float32] | None,  # [E, S] before this row, when `needs_state`
    ) -> None:
        """Write what was computed for the newest row."""
        at = self._at
        self._small["action"][at] = action
        for name, values in behaviour.items():
            self._small[f"behaviour/{name}"][at] = values
        self._version += version
        if self.needs_state:
            assert state is not None
            assert self._begins is not None
            self._states[self._begins] = np.array(state)
        self._last_action = action

    @property
    def pending_steps(self) -> int:
        """Steps in the block that is not handed on: what is lost if the session ends now."""
        if not self._rows:
            return 0
        flags = self._small["flags"][-self._spec.steps :][: self._rows]
        return int(np.count_nonzero((flags & FIRST) == 0))
