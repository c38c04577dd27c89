"""Sequence chunks: the newest T steps of a session for replay, which complete E sequences.

Unlike an unroll, a chunk waits for the outputs of its last step, because the priorities of its
sequences need them.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.protocol import SequenceWindow
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, ArraySpec, DeviceFrames, StepInputs


@dataclass(frozen=True)
class SequencePlan:
    """Plan of the chunks of a session.

    Attributes:
        spec: sizes of a sequence.
        behaviour: what inference leaves for the priority, by name, for one step.
        priority: computes the priorities `[E]` of new sequences.
        keeps_frames: whether frames stay on the device where inference has been sent them.
    """

    spec: SequenceSpec
    behaviour: Mapping[str, ArraySpec]
    priority: Callable[[SequenceWindow], NDArray[np.float32]]
    keeps_frames: bool = False

    @property
    def frame_stack(self) -> int:
        """K, observations of a stack."""
        return self.spec.frame_stack

    def writer(self, environments: int) -> "SequenceWriter":
        """Return the writer of one session.

        Args:
            environments: E, environments of the session.
        """
        return SequenceWriter(self, environments)


class SequenceWriter:
    """Writes the steps of one session. Its methods are those of `UnrollWriter`.

    The small arrays (all but the observations) hold the timesteps of a sequence and one before,
    the newest T at the end. The observations are those of the newest T timesteps only, or of the
    newest one where frames stay on the device: then inference leaves those of a chunk in `inputs`.
    """

    def __init__(self, plan: SequencePlan, environments: int) -> None:
        self._plan, self._spec = plan, plan.spec
        self._environments = environments
        self._stream_id = secrets.randbits(63)
        self._chunk_index = 0  # of the chunk that is being written
        self._written = 0  # steps of the chunk that have been written
        self._length = self._spec.frames + 1
        self._last_action = np.full(environments, -1, np.int32)
        # By the index of the chunk whose sequences begin with them.
        self._states: dict[int, NDArray[np.float32]] = {}
        self._frames = self._new_frames()
        self._newest: NDArray[Any]  # observation of the newest step
        self._small = self._new_small()
        self._version = 0.0

    def _new_frames(self) -> NDArray[Any] | DeviceFrames:
        if self._plan.keeps_frames:
            return DeviceFrames(self._spec.steps)
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
        """Index of the newest step in the small arrays."""
        return self._length - self._spec.steps + self._written - 1

    def add_step(
        self, observation: NDArray[Any], reward: NDArray[np.float32], flags: NDArray[np.uint8]
    ) -> SequenceChunk | None:
        """Write the next step, and return the chunk that was full before it, if any.

        Args:
            observation: `[E, *shape]`.
            reward: `[E]`.
            flags: `[E]`, bits of StepFlag.
        """
        chunk = self._complete_chunk() if self._written == self._spec.steps else None
        self._written += 1
        at = self._at
        if isinstance(self._frames, DeviceFrames):
            self._frames.newest = self._written - 1
            # New memory for every step, because the device may share the memory of the old one.
            self._newest = np.array(observation, self._spec.observation.dtype)
        else:
            self._frames[self._written - 1] = observation
            self._newest = self._frames[self._written - 1]
        self._small["flags"][at] = flags
        self._small["reward"][at] = reward
        return chunk

    def _complete_chunk(self) -> SequenceChunk:
        spec, small = self._spec, self._small
        # The timesteps of the sequence in the small arrays.
        timesteps = slice(self._length - spec.timesteps, None)
        flags = small["flags"][timesteps]
        window = SequenceWindow(
            trained=spec.steps,
            action=small["action"][timesteps],
            reward=small["reward"][timesteps],
            terminated=(flags & TERMINATED) != 0,
            life_lost=(flags & LIFE_LOST) != 0,
            first=(flags & FIRST) != 0,
            behaviour={
                name: small[f"behaviour/{name}"][timesteps] for name in self._plan.behaviour
            },
        )
        no_state = np.zeros((self._environments, spec.state_size), np.float32)
        chunk = SequenceChunk(
            stream_id=self._stream_id,
            chunk_index=self._chunk_index,
            frames=self._frames,
            flags=small["flags"][1:],
            reward=window.reward,
            action=window.action[:-1],
            previous_action=small["action"][self._length - spec.timesteps - 1],
            state=self._states.pop(self._chunk_index, no_state),
            priority=self._plan.priority(window),
            version=self._version / spec.steps,
        )
        self._chunk_index += 1
        self._written, self._version = 0, 0.0
        # New memory, because the chunk keeps the old one.
        self._frames, self._small = self._new_frames(), self._new_small()
        for name, array in small.items():
            self._small[name][: -spec.steps] = array[spec.steps :]
        return chunk

    def inputs(self, slots: NDArray[np.int32]) -> StepInputs:
        """Return the newest step for inference: views, which are never written to again.

        Args:
            slots: `[E]`, slots of the environments.
        """
        small, at = self._small, self._at
        return StepInputs(
            slots=slots,
            observation=self._newest,
            flags=small["flags"][at],
            reward=small["reward"][at],
            previous_action=self._last_action,
            kept=self._frames if isinstance(self._frames, DeviceFrames) else None,
        )

    @property
    def _begins(self) -> int | None:
        """Index of the chunk whose sequences begin with the newest step, if there is one."""
        t = self._chunk_index * self._spec.steps + self._written - 1
        chunks, rest = divmod(t + self._spec.timesteps, self._spec.steps)
        return chunks - 1 if rest == 0 else None

    @property
    def needs_state(self) -> bool:
        """Return whether the newest step begins sequences, which keep the state before it."""
        return self._spec.state_size > 0 and self._begins is not None

    def set_outputs(
        self,
        action: NDArray[np.int32],
        behaviour: Mapping[str, NDArray[Any]],
        version: int,
        state: NDArray[np.float32] | None,
    ) -> None:
        """Write what inference computed for the newest step.

        Args:
            action: `[E]`.
            behaviour: arrays `[E, ...]` by name.
            version: version of the parameters that chose the actions.
            state: recurrent state `[E, S]` before this step; None unless `needs_state`.
        """
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
        """Steps of the incomplete chunk: what is lost if the session ends now."""
        if not self._written:
            return 0
        flags = self._small["flags"][-self._spec.steps :][: self._written]
        return int(np.count_nonzero((flags & FIRST) == 0))
