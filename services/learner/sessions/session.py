"""Sessions: the learner's end of one actor stream, with its slots, its unroll and its counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbed.numbers import Bounds, InvalidNumbers, check_flags, check_magnitudes
from seedbed.rpc.step_codec import Step
from seedbed.runtime.text import counted
from seedbed.services.learner.sessions.batcher import Request
from seedbed.services.learner.sessions.rejections import InvalidStep
from seedbed.services.learner.unrolls.queue import CompletedUnroll
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import FIRST, TERMINATED, TRUNCATED, EnvironmentSpec
from seedbed.telemetry.sessions import SessionStats

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.learner.unrolls.sequences import SequencePlan

_ENDED = np.uint8(TERMINATED | TRUNCATED)
# Longest duration of a step, or of a wait for actions.
_LONGEST_S = 1e6


def _wrong_seconds(step: Step) -> InvalidStep:
    field, seconds = "environment_seconds", step.environment_seconds
    if 0 <= seconds <= _LONGEST_S:
        field, seconds = "wait_seconds", step.wait_seconds
    return InvalidStep(field, f"0 to {_LONGEST_S:g} seconds", f"{seconds:g}", "measure durations")


class Session:
    """One lock-step group: checks each step, writes it into the unroll, counts it.

    `receive` and `request` alternate. The inference thread calls `set_outputs` while the event
    loop awaits the request, so that one thread at a time uses a session.

    Args:
        spec: sizes of a step of one environment.
        slots: [E] int32, slots of the environments.
        unroll: makes the writer of the unrolls.
        stats: receives the counts.
        bounds: largest magnitudes of rewards and observations.

    Attributes:
        sequence: number of the next step.
        set_outputs: writes the outputs of inference for the newest step; see `UnrollWriter`.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        slots: NDArray[np.int32],
        unroll: "UnrollSpec | SequencePlan",
        stats: SessionStats,
        bounds: Bounds,
    ) -> None:
        self._max_reward, self._max_observation = bounds
        self._spec = spec
        self._slots = slots
        self.num_envs = e = len(slots)
        self.sequence = 0
        self._stats = stats
        self._writer = unroll.writer(e)
        self.set_outputs = self._writer.set_outputs
        self._shape = (e, *spec.observation.shape)
        self._dtype = np.dtype(spec.observation.dtype)
        self._floats = spec.observation.floats
        # Of numbers that are judged, a copy: a process that shares the memory could change them.
        self._is_judged = bool(self._floats(np.empty(self._shape, self._dtype)))
        self._observation_bytes = e * spec.observation.row_bytes
        self._repeat = spec.action_repeat
        self._returns = np.zeros(e)
        self._lengths = np.zeros(e, np.int64)
        self._must_be_first = np.ones(e, bool)
        self._any_must_be_first = True
        self._unmarked_steps = 0  # that have no flags, and are not in `_lengths` yet
        self._no_flags: NDArray[np.uint8] = np.zeros(e, np.uint8)
        self._no_reward: NDArray[np.float32] = np.zeros(e, np.float32)
        self._no_flags_bytes, self._no_reward_bytes = bytes(e), bytes(4 * e)

    def receive(self, step: Step) -> CompletedUnroll | None:
        """Check and write one step.

        Returns:
            The unroll that the step completes, or None.

        Raises:
            InvalidStep: the step does not fit. The session has not changed.
        """
        if step.sequence != self.sequence:
            raise InvalidStep(
                "sequence", self.sequence, step.sequence, "steps go 0, 1, 2, ... without gaps"
            )
        e, observation_bytes = self.num_envs, step.observation
        flags_bytes, reward_bytes = step.flags, step.reward
        if len(observation_bytes) != self._observation_bytes:
            raise self._wrong_bytes("observation", self._observation_bytes, len(observation_bytes))
        if len(reward_bytes) != 4 * e:
            raise self._wrong_bytes("reward", 4 * e, len(reward_bytes))
        if len(flags_bytes) != e:
            raise self._wrong_bytes("flags", e, len(flags_bytes))
        environment_s, wait_s = step.environment_seconds, step.wait_seconds
        # Written so that NaN does not pass: it would stay in every sum.
        if not (0 <= environment_s <= _LONGEST_S and 0 <= wait_s <= _LONGEST_S):
            raise _wrong_seconds(step)
        if self._is_judged:
            observation_bytes = bytes(observation_bytes)
        observation: NDArray[Any] = np.ndarray(self._shape, self._dtype, observation_bytes)
        # Most steps have no flag, and many no reward. Comparing bytes costs next to nothing; a
        # NumPy call on a few numbers costs microseconds, and thousands of steps arrive a second.
        flags, reward = self._no_flags, self._no_reward
        is_flagged = flags_bytes != self._no_flags_bytes
        is_rewarded = reward_bytes != self._no_reward_bytes
        try:
            if is_rewarded:
                reward = np.frombuffer(reward_bytes, np.float32)
                check_magnitudes("reward", reward, self._max_reward)
            for numbers in self._floats(observation):
                check_magnitudes("observation", numbers, self._max_observation)
        except InvalidNumbers as wrong:
            advice = f"fix the environment, or raise environment.max_abs_{wrong.field}"
            raise InvalidStep(wrong.field, wrong.expected, wrong.received, advice) from None
        if self._any_must_be_first or is_flagged:
            if is_flagged:
                flags = np.frombuffer(flags_bytes, np.uint8)
            first = (flags & FIRST) != 0
            self._check_flags(flags, first)
            self._stats.on_step(
                (e - int(np.count_nonzero(first))) * self._repeat, environment_s, wait_s
            )
            self._count_episodes(reward, flags, first)
        else:
            self._stats.on_step(e * self._repeat, environment_s, wait_s)
            self._unmarked_steps += 1
            if is_rewarded:
                self._returns += reward
        self.sequence += 1
        return self._writer.add_step(observation, reward, flags)

    def _wrong_bytes(self, field: str, expected: int, received: int) -> InvalidStep:
        return InvalidStep(
            field,
            f"{expected} bytes ({counted(self.num_envs, 'environment')} of "
            f"{self._spec.observation})",
            f"{received} bytes",
            "send exactly what Hello announced",
        )

    def _check_flags(self, flags: NDArray[np.uint8], first: NDArray[np.bool_]) -> None:
        try:
            check_flags(flags)
        except InvalidNumbers as wrong:
            raise InvalidStep(wrong.field, wrong.expected, wrong.received, "see StepFlag") from None
        if (self._must_be_first & ~first).any():
            row = int(np.flatnonzero(self._must_be_first & ~first)[0])
            raise InvalidStep(
                "flags",
                f"row {row} marked FIRST, since its episode is new or had ended",
                f"flags {int(flags[row])}",
                "send the next episode's first observation after a finished row",
            )
        ended = flags & _ENDED
        if (ended == _ENDED).any() or (first & (ended != 0)).any():
            row = int(np.flatnonzero((ended == _ENDED) | (first & (ended != 0)))[0])
            raise InvalidStep(
                "flags",
                "at most one of FIRST, TERMINATED and TRUNCATED",
                f"flags {int(flags[row])} in row {row}",
                "terminated wins over truncated; a first row has not ended",
            )

    def _count_episodes(
        self,
        reward: NDArray[np.float32],
        flags: NDArray[np.uint8],
        first: NDArray[np.bool_],
    ) -> None:
        self._lengths += self._unmarked_steps
        self._unmarked_steps = 0
        if first.any():
            # A first step that no finished step precedes: the episode was cut.
            cut = int(np.count_nonzero(first & ~self._must_be_first))
            if cut:
                self._stats.on_abandoned(cut)
            self._returns[first] = 0.0
            self._lengths[first] = 0
            self._returns += np.where(first, 0.0, reward)
            self._lengths += ~first
        else:
            self._returns += reward
            self._lengths += 1
        ended = (flags & _ENDED) != 0
        self._must_be_first, self._any_must_be_first = ended, bool(ended.any())
        if self._any_must_be_first:
            self._stats.on_episodes(self._returns[ended], self._lengths[ended])

    def request(self, on_done: Callable[[], None] = lambda: None) -> Request:
        """Return the newest step as a request for inference.

        Args:
            on_done: called in the event loop once the outputs are in the request.
        """
        inputs, needs_state = self._writer.inputs(self._slots), self._writer.needs_state
        return Request(inputs, self.num_envs, needs_state, self.set_outputs, on_done)

    def close(self) -> None:
        """Count the steps of the incomplete unroll as discarded, and the open episodes."""
        discarded = self._writer.pending_steps * self._repeat
        if discarded:
            self._stats.on_discarded(discarded, "session ended")
        cut = int(np.count_nonzero(~self._must_be_first))
        if cut and self.sequence:
            self._stats.on_abandoned(cut)
