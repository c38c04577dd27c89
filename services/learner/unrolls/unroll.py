"""Unrolls: T steps of a session and the bootstrap step, time-major.

The environments of a session step together, so an observation is one copy into timestep t.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import FIRST, ONE_ACTION, ArraySpec, StepInputs


@dataclass(frozen=True)
class UnrollSpec:
    """Sizes of an unroll. K is the frame stack, S the recurrent state, and R = T + 1."""

    observation: ArraySpec
    unroll_length: int  # T
    frame_stack: int  # K
    state_size: int  # S
    behaviour: Mapping[str, ArraySpec]
    action: ArraySpec = ONE_ACTION

    def bytes_per_environment(self) -> int:
        """Return the host memory of one environment's unroll, in bytes."""
        timesteps = self.frame_stack + self.unroll_length
        # Flags, rewards, and actions with the one before timestep 0.
        actions = self.action.row_bytes * (self.unroll_length + 1)
        scalars = timesteps + 4 * (self.unroll_length + 1) + actions
        behaviour = sum(spec.row_bytes for spec in self.behaviour.values()) * self.unroll_length
        return timesteps * self.observation.row_bytes + scalars + behaviour + 4 * self.state_size

    def batch_arrays(self, batch_size: int) -> dict[str, ArraySpec]:
        """Return shape and dtype of each array of a `TrainingBatch`, by name.

        Args:
            batch_size: B.
        """
        t, b = self.unroll_length, batch_size
        timesteps = self.frame_stack + t
        observation, action = self.observation, self.action
        return {
            "observation": ArraySpec((timesteps, b, *observation.shape), observation.dtype),
            "flags": ArraySpec((timesteps, b), "uint8"),
            "reward": ArraySpec((t + 1, b), "float32"),
            "action": ArraySpec((t, b, *action.shape), action.dtype),
            "previous_action": ArraySpec((b, *action.shape), action.dtype),
            "state": ArraySpec((b, self.state_size), "float32"),
            **{
                f"behaviour/{name}": ArraySpec((t, b, *array.shape), array.dtype)
                for name, array in self.behaviour.items()
            },
        }

    def writer(self, environments: int) -> "UnrollWriter":
        """Return the writer of one session.

        Args:
            environments: E, environments of the session.
        """
        return UnrollWriter(self, environments)


@dataclass(eq=False)
class SessionUnroll:
    """One unroll of the E environments of a session. Never written to once it is handed on.

    The first K-1 timesteps of `observation` and `flags` are what the first stack needs.
    """

    observation: NDArray[Any]  # [K-1+R, E, *shape]
    flags: NDArray[np.uint8]  # [K-1+R, E], bits of StepFlag
    reward: NDArray[np.float32]  # [R, E]
    action: NDArray[Any]  # [T, E, *action]
    previous_action: NDArray[Any]  # [E, *action], the one before timestep 0
    behaviour: dict[str, NDArray[Any]]  # [T, E, ...] each
    version: NDArray[np.int64]  # [T], version of the parameters that chose the actions
    state: NDArray[np.float32]  # [E, S], before timestep 0

    @property
    def environments(self) -> int:
        """E."""
        return int(self.action.shape[1])

    @property
    def steps(self) -> int:
        """Transitions of the unroll that are steps of an environment."""
        return int(np.count_nonzero((self.flags[-len(self.action) :] & FIRST) == 0))


class UnrollWriter:
    """Writes the steps of one session, and returns each unroll once it is complete.

    `add_step` and `set_outputs` alternate: a step arrives, then inference computes its outputs.
    The bootstrap step T completes an unroll before its own inference, and is step 0 of the next.
    """

    def __init__(self, spec: UnrollSpec, environments: int) -> None:
        self._spec = spec
        self._environments = environments
        self._context = spec.frame_stack - 1
        self._unroll = self._new_unroll()
        self._t = -1
        self._last_action = np.full((environments, *spec.action.shape), -1, spec.action.dtype)

    def _new_unroll(self) -> SessionUnroll:
        spec, e = self._spec, self._environments
        timesteps, steps = self._context + spec.unroll_length + 1, spec.unroll_length
        # New memory for every unroll, because the device may share the memory of the old one. The
        # reference count frees it.
        return SessionUnroll(
            observation=np.empty((timesteps, e, *spec.observation.shape), spec.observation.dtype),
            flags=np.zeros((timesteps, e), np.uint8),
            reward=np.empty((steps + 1, e), np.float32),
            action=np.empty((steps, e, *spec.action.shape), spec.action.dtype),
            previous_action=np.full((e, *spec.action.shape), -1, spec.action.dtype),
            behaviour={
                name: np.empty((steps, e, *array.shape), array.dtype)
                for name, array in spec.behaviour.items()
            },
            version=np.empty(steps, np.int64),
            state=np.zeros((e, spec.state_size), np.float32),
        )

    def add_step(
        self, observation: NDArray[Any], reward: NDArray[np.float32], flags: NDArray[np.uint8]
    ) -> SessionUnroll | None:
        """Write the next step, and return the unroll that it completes, if any.

        Args:
            observation: `[E, *shape]`.
            reward: `[E]`.
            flags: `[E]`, bits of StepFlag.
        """
        # Every environment is `first` at the first step of a session.
        if self._t < 0:
            self._unroll.observation[: self._context] = 0
        self._t += 1
        at, t = self._context + self._t, self._t
        unroll = self._unroll
        unroll.observation[at] = observation
        unroll.flags[at] = flags
        unroll.reward[t] = reward
        if t < self._spec.unroll_length:
            return None
        done, self._unroll, self._t = unroll, self._new_unroll(), 0
        fresh, keep = self._unroll, self._context + 1
        fresh.observation[:keep] = done.observation[-keep:]
        fresh.flags[:keep] = done.flags[-keep:]
        fresh.reward[0] = done.reward[-1]
        fresh.previous_action[:] = self._last_action
        return done

    def inputs(self, slots: NDArray[np.int32]) -> StepInputs:
        """Return the newest step for inference: views, which are never written to again.

        Args:
            slots: `[E]`, slots of the environments.
        """
        unroll, t, at = self._unroll, self._t, self._context + self._t
        return StepInputs(
            slots, unroll.observation[at], unroll.flags[at], unroll.reward[t], self._last_action
        )

    @property
    def needs_state(self) -> bool:
        """Return whether the newest step is step 0, whose recurrent state the unroll keeps."""
        return self._t == 0 and self._spec.state_size > 0

    def set_outputs(
        self,
        action: NDArray[Any],
        behaviour: Mapping[str, NDArray[Any]],
        version: int,
        state: NDArray[np.float32] | None,
    ) -> None:
        """Write what inference computed for the newest step.

        Args:
            action: `[E, *action]`.
            behaviour: arrays `[E, ...]` by name.
            version: version of the parameters that chose the actions.
            state: recurrent state `[E, S]` before this step; None unless `needs_state`.
        """
        unroll, t = self._unroll, self._t
        unroll.action[t] = action
        for name, values in behaviour.items():
            unroll.behaviour[name][t] = values
        unroll.version[t] = version
        if self.needs_state:
            assert state is not None
            unroll.state[:] = state
        self._last_action = action

    @property
    def pending_steps(self) -> int:
        """Steps of the incomplete unroll: what is lost if the session ends now."""
        if self._t < 0:
            return 0
        flags = self._unroll.flags[self._context + 1 : self._context + 1 + self._t]
        return int(np.count_nonzero((flags & FIRST) == 0))
