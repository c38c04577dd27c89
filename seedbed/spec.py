"""Shapes, dtypes and flags of environments, which actor and learner share."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

# What the wire takes: actions, encoded side by side, and emulator frames of a step.
MAX_ACTIONS, MAX_REPEAT = 2**15, 1024
# Seeds of a run: 2^14 actors × 2^5 groups × 2^12 environments = 2^31.
ACTORS, GROUPS, ENVIRONMENTS = 1 << 14, 1 << 5, 1 << 12
# Bits of StepFlag in proto/seedbed/v1.
TERMINATED, TRUNCATED, LIFE_LOST, FIRST = 1, 2, 4, 8
ALL_FLAGS = TERMINATED | TRUNCATED | LIFE_LOST | FIRST
_TERMINATED, _TRUNCATED, _LIFE_LOST, _FIRST = map(
    np.uint8, (TERMINATED, TRUNCATED, LIFE_LOST, FIRST)
)
# Arrays of a training batch whose first axis is B; of the others it is the second one, after time.
BATCH_FIRST = frozenset({"previous_action", "state", "probability"})


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one environment's part of an array, without the leading axis E."""

    shape: tuple[int, ...]
    dtype: str  # NumPy's name, "uint8"

    @property
    def row_bytes(self) -> int:
        """Bytes of one environment's part."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def floats(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the parts of arrays [..., *shape] that are floating-point numbers."""
        return [array] if self.dtype.startswith("float") else []

    def to_json(self) -> list[dict[str, Any]] | None:
        """Return the entries of a packed observation; None of a single array."""
        return None

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


# So few numbers are faster as Python's.
_FEW = 64
# One action of a discrete space.
ONE_ACTION = ArraySpec((), "int32")


@dataclass(frozen=True)
class ActionSpec:
    """Action space of one environment.

    Attributes:
        kind: `discrete`, one of A; `multi_discrete`, one of each of several; `continuous`, numbers
            in [-1, 1], which the environment's side scales to its bounds.
        sizes: (A,); the number of choices of each part; or (D,), the number of dimensions.
    """

    kind: Literal["discrete", "multi_discrete", "continuous"]
    sizes: tuple[int, ...]

    @classmethod
    def discrete(cls, actions: int) -> "ActionSpec":
        """Return the space of A actions."""
        return cls("discrete", (actions,))

    @property
    def width(self) -> int:
        """Width of an encoded action: its one-hot vectors side by side, or its numbers."""
        return sum(self.sizes)

    @cached_property
    def array(self) -> ArraySpec:
        """Shape and dtype of one environment's action."""
        if self.kind == "discrete":
            return ONE_ACTION
        if self.kind == "multi_discrete":
            return ArraySpec((len(self.sizes),), "int32")
        return ArraySpec(self.sizes, "float32")

    def none(self, num_envs: int) -> NDArray[Any]:
        """Return the previous actions of E environments before their first one: -1, or 0."""
        fill = 0 if self.kind == "continuous" else -1
        return np.full((num_envs, *self.array.shape), fill, self.array.dtype)

    def read(self, data: bytes, num_envs: int) -> NDArray[Any]:
        """Return the actions [E, *action] of a message.

        Raises:
            ValueError: their size is another one.
        """
        return np.frombuffer(data, self.array.dtype).reshape(num_envs, *self.array.shape)

    def wrong(self, action: NDArray[Any]) -> str | None:
        """Return which of E actions is out of the space, in words; None if none is.

        Args:
            action: [E, *action] of the right dtype.
        """
        if self.kind == "discrete" and 0 < action.size <= _FEW:
            # As Python's numbers, because a call of NumPy takes microseconds with cold caches.
            numbers = action.tolist()
            if min(numbers) >= 0 and max(numbers) < self.sizes[0]:
                return None
        if self.kind == "continuous":
            low: Any = -1
            high: Any = 1
        else:
            low, high = 0, np.array(self.sizes if self.kind == "multi_discrete" else self.sizes[0])
            high = high - 1
        # Written so that NaN does not pass. Two reductions of few numbers take microseconds.
        fits = (action >= low) & (action <= high)
        if fits.all():
            return None
        place = tuple(int(i) for i in np.argwhere(~fits)[0])
        part = f" (number {place[1]})" if len(place) > 1 else ""
        most = np.broadcast_to(high, action.shape)[place]
        return (
            f"action {action[place]} for environment {place[0]}{part} is out of range: "
            f"it takes {low} .. {most}"
        )

    def random(self, random: np.random.Generator, num_envs: int) -> NDArray[Any]:
        """Return actions of E environments, drawn uniformly."""
        shape = (num_envs, *self.array.shape)
        if self.kind == "continuous":
            return random.uniform(-1, 1, shape).astype(np.float32)
        high = self.sizes if self.kind == "multi_discrete" else self.sizes[0]
        return random.integers(0, high, shape, np.int32)

    def __str__(self) -> str:
        if self.kind == "continuous":
            return f"{self.sizes[0]} continuous action{'s' * (self.sizes[0] != 1)}"
        return f"{' x '.join(map(str, self.sizes))} action{'s' * (self.sizes != (1,))}"


@dataclass(frozen=True)
class EnvironmentSpec:
    """Spec of one environment.

    Attributes:
        name: the `environment.id` of the experiment.
        observation: a single image, never a stack.
        actions: A, width of an encoded action: the size of a discrete space.
        action_repeat: emulator frames in a step.
        space: the action space, unless it is discrete.
    """

    name: str
    observation: ArraySpec
    actions: int
    action_repeat: int
    space: ActionSpec | None = None

    @cached_property
    def action(self) -> ActionSpec:
        """The action space."""
        return self.space or ActionSpec.discrete(self.actions)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a checkpoint keeps them; `read_environment_spec` reads them."""
        tree: dict[str, Any] = {
            "name": self.name,
            "observation_shape": list(self.observation.shape),
            "observation_dtype": self.observation.dtype,
            "actions": self.actions,
            "action_repeat": self.action_repeat,
        }
        if self.space is not None:
            tree["space"] = {"kind": self.space.kind, "sizes": list(self.space.sizes)}
        if (entries := self.observation.to_json()) is not None:
            tree["entries"] = entries
        return tree


@dataclass(eq=False)
class DeviceFrames:
    """Observations of T time steps of E environments, which inference alone has been sent.

    Attributes:
        steps: T.
        newest: number of the newest time step, from 0.
        array: [E, T, *shape] on the device, once all T have been sent. Never changed afterwards.
    """

    steps: int
    newest: int = 0
    array: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the array would have on the host, time-major."""
        environments, steps, *shape = map(int, self.array.shape)
        return (steps, environments, *shape)

    @property
    def dtype(self) -> str:
        """NumPy's name of the dtype."""
        return str(self.array.dtype.name)

    def __len__(self) -> int:
        return self.steps


class StepInputs(NamedTuple):
    """Inputs of inference from one lock-step group: the newest step of its E environments."""

    slots: NDArray[np.int32]  # [E]
    observation: NDArray[Any]  # [E, *shape]
    flags: NDArray[np.uint8]  # [E]
    reward: NDArray[np.float32]  # [E]
    previous_action: NDArray[np.int32]  # [E]
    kept: DeviceFrames | None = None  # what the observation belongs to, where it stays there


class TimeStep(NamedTuple):
    """Result of one step of a vector environment with E environments.

    NEXT_STEP autoreset, whatever the environment does: a finished step (`terminated` or
    `truncated`) holds the episode's true last observation. The next step of the same environment
    is the first of the next episode: it has the flag `first` and reward 0, and its action is
    ignored. An episode that was cut has no finished step before the next `first`: its environment
    raised and was made anew, or `restart` was called.
    """

    observation: NDArray[np.generic]  # [E, *shape]
    reward: NDArray[np.float32]  # [E], never clipped
    terminated: NDArray[np.bool_]  # [E]
    truncated: NDArray[np.bool_]  # [E], never together with terminated
    life_lost: NDArray[np.bool_]  # [E]
    first: NDArray[np.bool_]  # [E]

    @classmethod
    def zeros(cls, spec: EnvironmentSpec, num_envs: int) -> "TimeStep":
        """Return new arrays of zeros for E environments of a spec."""
        observation = np.zeros((num_envs, *spec.observation.shape), spec.observation.dtype)
        flags = np.zeros((4, num_envs), np.bool_)
        return cls(observation, np.zeros(num_envs, np.float32), *flags)


def mark_first(time_step: TimeStep, chosen: NDArray[np.bool_] | int) -> None:
    """Make a step the first of an episode, for some environments. Keeps the observation.

    Args:
        time_step: changed in place.
        chosen: mask [E], or the index of one environment.
    """
    time_step.reward[chosen] = 0.0
    time_step.terminated[chosen] = time_step.truncated[chosen] = time_step.life_lost[chosen] = False
    time_step.first[chosen] = True


def pack_flags(time_step: TimeStep) -> bytes:
    """Return the flags of a time step as they are sent: [E] uint8, bits of StepFlag."""
    none = bytes(len(time_step.first))
    # Most steps have no flag. Comparing bytes costs a tenth of computing with arrays.
    if (
        time_step.terminated.tobytes() == none
        and time_step.truncated.tobytes() == none
        and time_step.life_lost.tobytes() == none
        and time_step.first.tobytes() == none
    ):
        return none
    flags = time_step.terminated * _TERMINATED
    flags |= time_step.truncated * _TRUNCATED
    flags |= time_step.life_lost * _LIFE_LOST
    flags |= time_step.first * _FIRST
    return flags.tobytes()


class VectorEnv(Protocol):
    """E environments that step together. One thread at a time uses them.

    Attributes:
        spec: spec of each environment.
        num_envs: E.
        failures: how often environments failed and were made anew, by cause.
        incarnation: chooses the episodes of the next `reset`; the same number gives the same ones.
    """

    spec: EnvironmentSpec
    num_envs: int
    failures: Mapping[str, int] = MappingProxyType({})
    incarnation: int = 0

    def reset(self) -> TimeStep:
        """Start the first episode of every environment. Every flag `first` is set.

        The episodes depend on the seeds and on `incarnation`.
        """

    def reset_again(self) -> TimeStep:
        """Do as `reset`, after a `reset`; random numbers may go on where they are.

        That spares an environment what it loads for a seed.
        """
        return self.reset()

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        """Step every environment.

        Args:
            action: [E] int32, each in 0 .. actions-1.
        """

    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        """Cut the episodes of some environments, and start new ones.

        Args:
            time_step: the result of the last `step`. The chosen environments' part becomes the
                first step of an episode.
            chosen: mask [E] of environments whose step is not finished.
        """

    def close(self) -> None:
        """Release threads, processes and memory."""
