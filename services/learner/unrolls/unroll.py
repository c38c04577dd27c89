"""Unrolls: T steps of a lock-step group plus the row that bootstraps them, time-major.

A session is a lock-step batch, so a block needs no scatter: a frame is one copy into row t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import FIRST, ArraySpec


@dataclass(frozen=True)
class UnrollSpec:
    """Sizes of a block. `K` is the frame stack, `S` the recurrent state, `R = T + 1`."""

    observation: ArraySpec
    unroll_length: int  # T
    frame_stack: int  # K
    state_size: int  # S
    behaviour: Mapping[str, ArraySpec]

    def bytes_per_environment(self) -> int:
        """Host memory of one environment's column of a block, in bytes."""
        rows = self.frame_stack + self.unroll_length
        # Flags, rewards, and actions with the one before row 0.
        scalars = rows + 4 * (self.unroll_length + 1) + 4 * (self.unroll_length + 1)
        behaviour = sum(spec.row_bytes for spec in self.behaviour.values()) * self.unroll_length
        return rows * self.observation.row_bytes + scalars + behaviour + 4 * self.state_size

    def writer(self, environments: int) -> UnrollWriter:
        """Writes the unrolls of one session."""
        return UnrollWriter(self, environments)


@dataclass(eq=False)
class SessionUnroll:
    """One unroll of E environments. Nobody writes to it once it has been handed on.

    The first K-1 rows of `observation` and `flags` are what the first stack needs.
    """

    observation: NDArray[Any]  # [K-1+R, E, *shape]
    flags: NDArray[np.uint8]  # [K-1+R, E], bits of StepFlag
    reward: NDArray[np.float32]  # [R, E]
    action: NDArray[np.int32]  # [T, E]
    previous_action: NDArray[np.int32]  # [E], the one before row 0
    behaviour: dict[str, NDArray[Any]]  # [T, E, ...] each
    version: NDArray[np.int64]  # [T], parameter version that chose row t's actions
    state: NDArray[np.float32]  # [E, S], before row 0

    @property
    def environments(self) -> int:
        """E."""
        return int(self.action.shape[1])

    @property
    def steps(self) -> int:
        """Transitions of the block that are steps of an environment."""
        context = self.flags.shape[0] - self.reward.shape[0]
        return int(np.count_nonzero((self.flags[context + 1 :] & FIRST) == 0))


class UnrollWriter:
    """Writes one session's rows; gives a block whenever one is complete.

    `add_row` and `set_outputs` alternate: a row arrives, then what was computed for it. Row T
    completes a block before its own inference, and is row 0 of the next.
    """

    def __init__(self, spec: UnrollSpec, environments: int) -> None:
        self._spec = spec
        self._environments = environments
        self._context = spec.frame_stack - 1
        self._block = self._new_block()
        self._row = -1
        self._last_action = np.full(environments, -1, np.int32)

    def _new_block(self) -> SessionUnroll:
        spec, e = self._spec, self._environments
        rows, steps = self._context + spec.unroll_length + 1, spec.unroll_length
        # New memory for every block: whoever still holds the old one (the device may share it)
        # keeps it whole, and the reference count frees it.
        return SessionUnroll(
            observation=np.empty((rows, e, *spec.observation.shape), spec.observation.dtype),
            flags=np.zeros((rows, e), np.uint8),
            reward=np.empty((steps + 1, e), np.float32),
            action=np.empty((steps, e), np.int32),
            previous_action=np.full(e, -1, np.int32),
            behaviour={
                name: np.empty((steps, e, *array.shape), array.dtype)
                for name, array in spec.behaviour.items()
            },
            version=np.empty(steps, np.int64),
            state=np.zeros((e, spec.state_size), np.float32),
        )

    def add_row(
        self,
        observation: NDArray[Any],  # [E, *shape]
        reward: NDArray[np.float32],  # [E]
        flags: NDArray[np.uint8],  # [E]
    ) -> SessionUnroll | None:
        """Write the next row; return the block that it completes, if it does."""
        if self._row < 0:  # the session's first row: every environment is `first`
            self._block.observation[: self._context] = 0
        self._row += 1
        at, row = self._context + self._row, self._row
        block = self._block
        block.observation[at] = observation
        block.flags[at] = flags
        block.reward[row] = reward
        if row < self._spec.unroll_length:
            return None
        done, self._block, self._row = block, self._new_block(), 0
        fresh, keep = self._block, self._context + 1
        fresh.observation[:keep] = done.observation[-keep:]
        fresh.flags[:keep] = done.flags[-keep:]
        fresh.reward[0] = done.reward[-1]
        fresh.previous_action[:] = self._last_action
        return done

    @property
    def observation(self) -> NDArray[Any]:
        """The newest row's observation [E, *shape]; never written to again."""
        row: NDArray[Any] = self._block.observation[self._context + self._row]
        return row

    @property
    def flags(self) -> NDArray[np.uint8]:
        """The newest row's flags [E]."""
        row: NDArray[np.uint8] = self._block.flags[self._context + self._row]
        return row

    @property
    def reward(self) -> NDArray[np.float32]:
        """The newest row's reward [E]."""
        row: NDArray[np.float32] = self._block.reward[self._row]
        return row

    @property
    def previous_action(self) -> NDArray[np.int32]:
        """The actions [E] given for the row before the newest; -1 before the first."""
        return self._last_action

    @property
    def needs_state(self) -> bool:
        """Whether the newest row is row 0, whose recurrent state the block keeps."""
        return self._row == 0 and self._spec.state_size > 0

    def set_outputs(
        self,
        action: NDArray[np.int32],  # [E]
        behaviour: Mapping[str, NDArray[Any]],  # [E, ...] each
        version: int,
        state: NDArray[np.float32] | None,  # [E, S] before this row, when `needs_state`
    ) -> None:
        """Write what was computed for the newest row."""
        block, row = self._block, self._row
        block.action[row] = action
        for name, values in behaviour.items():
            block.behaviour[name][row] = values
        block.version[row] = version
        if self.needs_state:
            assert state is not None
            block.state[:] = state
        self._last_action = action

    @property
    def pending_steps(self) -> int:
        """Steps in the block that is not complete: what is lost if the session ends now."""
        if self._row < 0:
            return 0
        rows = self._block.flags[self._context + 1 : self._context + 1 + self._row]
        return int(np.count_nonzero((rows & FIRST) == 0))
