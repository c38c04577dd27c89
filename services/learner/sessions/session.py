"""Sessions: one actor stream each, with leased slots, its unroll, and its episodes' accounts."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbed.rpc.step_codec import Step
from seedbed.services.learner.unrolls.queue import Finished
from seedbed.spec import FIRST, TERMINATED, TRUNCATED, EnvironmentSpec, StepInputs

_ENDED = np.uint8(TERMINATED | TRUNCATED)
_ALL_FLAGS = 15
_LONGEST_S = 1e6  # of a step, or of waiting for actions


class StreamRefused(Exception):
    """What a peer sent does not fit. Ends its stream; the learner lives on."""

    def __init__(self, field: str, expected: object, received: object, advice: str) -> None:
        super().__init__(f"{field}: expected {expected}, received {received}; {advice}")
        self.field = field
        self.expected = str(expected)
        self.received = str(received)
        self.advice = advice


class Rollout(Protocol):
    """Whose writer puts a session's rows together: `UnrollSpec`, or `SequencePlan` for replay."""

    def writer(self, environments: int) -> Any: ...


class Accounts(Protocol):
    """Where a session reports its steps and episodes; `Telemetry` in production."""

    def on_step(self, frames: int, environment_seconds: float, wait_seconds: float) -> None: ...
    def on_episodes(self, returns: NDArray[np.float64], lengths: NDArray[np.int64]) -> None: ...
    def on_abandoned(self, episodes: int) -> None: ...
    def on_discarded(self, frames: int, reason: str) -> None: ...


class SlotAllocator:
    """Leases rows of the device tables. There is no fixed table of actors anywhere.

    Args:
        slots: how many there are.
        key: the setting that says so.
    """

    def __init__(self, slots: int, key: str = "learner.inference.slots") -> None:
        self.slots, self._key = slots, key
        self._free = list(range(slots))

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    def lease(self, count: int) -> NDArray[np.int32]:
        """The lowest free slots [count] int32.

        Raises:
            StreamRefused: with both numbers, if there are not so many.
        """
        if count > len(self._free):
            raise StreamRefused(
                "slots",
                f"at most {len(self._free)} environments ({self.slots} slots in all)",
                f"{count} environments",
                f"raise {self._key} or run fewer actors",
            )
        return np.array([heapq.heappop(self._free) for _ in range(count)], np.int32)

    def release(self, slots: NDArray[np.int32]) -> None:
        """Give slots back, once no batch names them any more."""
        for slot in slots.tolist():
            heapq.heappush(self._free, slot)


@dataclass(frozen=True)
class Greeting:
    """What a session's Hello said, validated."""

    protocol_version: int
    incarnation: int
    actor: str
    environments: int
    spec: EnvironmentSpec


def _wrong_seconds(step: Step) -> StreamRefused:
    field, seconds = "environment_seconds", step.environment_seconds
    if 0 <= seconds <= _LONGEST_S:
        field, seconds = "wait_seconds", step.wait_seconds
    return StreamRefused(field, f"0 to {_LONGEST_S:g} seconds", f"{seconds:g}", "measure durations")


class Session:
    """One lock-step group: checks each step, writes it into the unroll, counts.

    `receive` and `answer` alternate; one thread at a time uses a session.
    """

    def __init__(
        self,
        number: int,
        greeting: Greeting,
        slots: NDArray[np.int32],
        unroll: Rollout,
        accounts: Accounts,
    ) -> None:
        self.number = number
        self.greeting = greeting
        self.slots = slots
        e = greeting.environments
        self.environments = e
        self.sequence = 0  # of the next step
        self._accounts = accounts
        self._writer = unroll.writer(e)
        self._shape = (e, *greeting.spec.observation.shape)
        self._dtype = np.dtype(greeting.spec.observation.dtype)
        self._is_float = self._dtype.kind == "f"
        self._observation_bytes = e * greeting.spec.observation.row_bytes
        self._repeat = greeting.spec.action_repeat
        self._returns = np.zeros(e)
        self._lengths = np.zeros(e, np.int64)
        self._must_be_first = np.ones(e, bool)
        self._someone_starts = True  # any of them
        self._no_flags, self._no_reward = bytes(e), bytes(4 * e)

    def receive(self, step: Step) -> Finished | None:
        """Check and write one step; return the block that it completes, if it does.

        Raises:
            StreamRefused: the step does not fit; nothing of it was kept.
        """
        if step.sequence != self.sequence:
            raise StreamRefused(
                "sequence", self.sequence, step.sequence, "steps go 0, 1, 2, ... without gaps"
            )
        e, observation_bytes = self.environments, step.observation
        flags_bytes, reward_bytes = step.flags, step.reward
        if len(observation_bytes) != self._observation_bytes:
            raise self._wrong_bytes("observation", self._observation_bytes, len(observation_bytes))
        if len(reward_bytes) != 4 * e:
            raise self._wrong_bytes("reward", 4 * e, len(reward_bytes))
        if len(flags_bytes) != e:
            raise self._wrong_bytes("flags", e, len(flags_bytes))
        environment_s, wait_s = step.environment_seconds, step.wait_seconds
        # NaN as well: it would stay in every sum.
        if not (0 <= environment_s <= _LONGEST_S and 0 <= wait_s <= _LONGEST_S):
            raise _wrong_seconds(step)
        flags = np.frombuffer(flags_bytes, np.uint8)
        reward = np.frombuffer(reward_bytes, np.float32)
        observation = np.frombuffer(observation_bytes, self._dtype).reshape(self._shape)
        # Most steps have no flag, and many no reward. Comparing bytes costs next to nothing; a
        # NumPy call on a few numbers costs microseconds, and thousands of steps arrive a second.
        rewarded = reward_bytes != self._no_reward
        self._check_numbers(observation, reward, rewarded)
        if self._someone_starts or flags_bytes != self._no_flags:
            first = (flags & FIRST) != 0
            self._check_flags(flags, first)
            self._accounts.on_step(
                (e - int(np.count_nonzero(first))) * self._repeat, environment_s, wait_s
            )
            self._account(reward, flags, first)
        else:
            self._accounts.on_step(e * self._repeat, environment_s, wait_s)
            self._lengths += 1
            if rewarded:
                self._returns += reward
        self.sequence += 1
        block: Finished | None = self._writer.add_row(observation, reward, flags)
        return block

    def _wrong_bytes(self, field: str, expected: int, received: int) -> StreamRefused:
        spec = self.greeting.spec
        return StreamRefused(
            field,
            f"{expected} bytes ({self.environments} environments of {spec.observation})",
            f"{received} bytes",
            "send exactly what Hello announced",
        )

    def _check_numbers(
        self, observation: NDArray[Any], reward: NDArray[np.float32], rewarded: bool
    ) -> None:
        if rewarded and not np.isfinite(reward).all():
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise StreamRefused(
                "reward", "finite numbers", f"{reward[row]} in row {row}", "mend the environment"
            )
        if self._is_float and not np.isfinite(observation).all():
            raise StreamRefused(
                "observation", "finite numbers", "NaN or infinity", "mend the environment"
            )

    def _check_flags(self, flags: NDArray[np.uint8], first: NDArray[np.bool_]) -> None:
        if flags.max() > _ALL_FLAGS:
            raise StreamRefused(
                "flags", f"bits below {_ALL_FLAGS + 1}", int(flags.max()), "see StepFlag"
            )
        if (self._must_be_first & ~first).any():
            row = int(np.flatnonzero(self._must_be_first & ~first)[0])
            raise StreamRefused(
                "flags",
                f"row {row} marked FIRST, since its episode is new or had ended",
                f"flags {int(flags[row])}",
                "send the next episode's first observation after a finished row",
            )
        ended = flags & _ENDED
        if (ended == _ENDED).any() or (first & (ended != 0)).any():
            row = int(np.flatnonzero((ended == _ENDED) | (first & (ended != 0)))[0])
            raise StreamRefused(
                "flags",
                "at most one of FIRST, TERMINATED and TRUNCATED",
                f"flags {int(flags[row])} in row {row}",
                "terminated wins over truncated; a first row has not ended",
            )

    def _account(
        self,
        reward: NDArray[np.float32],
        flags: NDArray[np.uint8],
        first: NDArray[np.bool_],
    ) -> None:
        if first.any():
            # A first row that no finished row precedes: its episode was cut, not ended.
            cut = int(np.count_nonzero(first & ~self._must_be_first))
            if cut:
                self._accounts.on_abandoned(cut)
            self._returns[first] = 0.0
            self._lengths[first] = 0
            self._returns += np.where(first, 0.0, reward)
            self._lengths += ~first
        else:
            self._returns += reward
            self._lengths += 1
        ended = (flags & _ENDED) != 0
        self._must_be_first, self._someone_starts = ended, bool(ended.any())
        if self._someone_starts:
            self._accounts.on_episodes(self._returns[ended], self._lengths[ended])

    def row(self) -> StepInputs:
        """What the newest step brings to an inference batch."""
        writer = self._writer
        return StepInputs(
            self.slots, writer.observation, writer.flags, writer.reward, writer.previous_action
        )

    @property
    def needs_state(self) -> bool:
        """Whether `answer` wants the recurrent state before the newest row."""
        needs_state: bool = self._writer.needs_state
        return needs_state

    def answer(
        self,
        action: NDArray[np.int32],
        behaviour: dict[str, NDArray[Any]],
        version: int,
        state: NDArray[np.float32] | None,
    ) -> None:
        """Keep what was computed for the newest step: [E], [E, ...], [E, S]."""
        self._writer.set_outputs(action, behaviour, version, state)

    def close(self) -> None:
        """The stream has ended: drop the block that is not complete, and say so."""
        discarded = self._writer.pending_steps * self._repeat
        if discarded:
            self._accounts.on_discarded(discarded, "session ended")
        cut = int(np.count_nonzero(~self._must_be_first))
        if cut and self.sequence:
            self._accounts.on_abandoned(cut)
