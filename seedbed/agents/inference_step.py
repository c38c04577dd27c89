"""One inference batch: reset, stack, act. A pure function over the device tables of slots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.agents.protocol import ActInputs, Agent
from seedbed.backends.protocol import Backend
from seedbed.backends.tables import Tables
from seedbed.networks.body import without_first
from seedbed.networks.registry import prepared_frame
from seedbed.ops.flags import is_set
from seedbed.ops.frame_stack import stack_step
from seedbed.spec import FIRST, ArraySpec, EnvironmentSpec, StepInputs
from seedbed.types import Params, Tensor


@dataclass
class InferenceOutputs:
    """Outputs of a batch on the host, environments in the order of the inputs."""

    action: NDArray[Any]  # [N, *action]
    behaviour: dict[str, NDArray[Any]]  # [N, ...] each
    padded_rows: int
    _state_before: Any  # [padded, S] on the device

    def state_before(self) -> NDArray[np.float32]:
        """Return the recurrent state [N, S] before the step. Copies it from the device."""
        return np.asarray(self._state_before)[: len(self.action)]


class PendingOutputs(Protocol):
    """Outputs of a batch that may still be computed."""

    def ready(self) -> bool:
        """Return whether they are computed, so that reading them waits for copies at most."""

    def result(self) -> InferenceOutputs:
        """Wait for the outputs, and return them on the host."""


class Policy(Protocol):
    """Interface of `InferenceStep`. Tests and benchmarks have implementations without a model.

    Attributes:
        in_flight: batches that are dispatched before the outputs of the oldest are read.
    """

    in_flight: int

    def dispatch(self, params: Params, inputs: Sequence[StepInputs]) -> PendingOutputs:
        """Start to compute the actions of all environments in one batch.

        Args:
            params: the parameters that act.
            inputs: the newest step of each group.
        """


def batches_in_flight(backend: Backend) -> int:
    """Return how many batches an inference thread keeps in flight.

    An accelerator computes one while the host reads the outputs of the one before. A CPU computes
    with the cores that read.
    """
    return 1 if backend.devices()[0].startswith("cpu") else 2


def padded_sizes(largest: int) -> list[int]:
    """Return the compiled batch sizes: powers of two and the sizes half way between them.

    Args:
        largest: size of the largest batch, in environments.
    """
    sizes, size = {largest}, 1
    while size < largest:
        sizes.add(size)
        if size >= 4:
            sizes.add(min(size + size // 2, largest))
        size *= 2
    return sorted(sizes)


def table_specs(
    agent: Agent, spec: EnvironmentSpec, frame_stack: int, slots: int, kept_steps: int = 0
) -> dict[str, tuple[int, ArraySpec]]:
    """Return rows and row spec of each table of `InferenceStep`, which has the same arguments."""
    frame = prepared_frame(agent.body, spec.observation)
    tables = {
        "state": (slots + 1, ArraySpec((agent.body.state_size,), "float32")),
        "frames": (slots + 1, ArraySpec((frame_stack - 1, *frame.shape), frame.dtype)),
    }
    if kept_steps:
        # By slot and time step, in one axis.
        tables["observations"] = ((slots + 1) * kept_steps, spec.observation)
    return tables


class InferenceStep:
    """Joins step inputs, pads them to a compiled size, runs the agent, and unpacks the outputs.

    Padding names the tables' spare last slot, which no session has. Call it from one thread.

    Args:
        backend: the backend of this process.
        agent: the agent.
        spec: the environment's.
        frame_stack: K.
        slots: environments that the tables have room for.
        max_batch: largest batch, in environments.
        seed: seed of the noise that is drawn on the host.
        greedy: choose as in evaluation.
        acting: number of the device that acts, from 0.
        kept_steps: T, newest time steps of each environment whose observations stay on the device;
            0 keeps none.
    """

    # Each argument is one setting; all of them have to reach the compiled function.

    def __init__(
        self,
        backend: Backend,
        agent: Agent,
        spec: EnvironmentSpec,
        frame_stack: int,
        slots: int,
        max_batch: int,
        seed: int | Sequence[int],
        greedy: bool = False,
        acting: int = 0,
        kept_steps: int = 0,
    ) -> None:
        self._agent, self._spec = agent, spec
        self._backend = backend
        self.in_flight = batches_in_flight(backend)
        self._greedy = greedy
        self._spare_slot = slots
        self._sizes = np.array(padded_sizes(max_batch))
        self.random = np.random.default_rng(seed)
        self._kept_steps = kept_steps
        tables = table_specs(agent, spec, frame_stack, slots, kept_steps)
        on_device = backend.tables(tables, acting)
        self._act = on_device.compile_inference(self._function)
        self._keep = on_device.compile(self._kept)

    def _function(
        self, tables: Tables, params: Params, slot: Tensor, inputs: dict[str, Any]
    ) -> dict[str, Any]:
        """Compute the outputs, and replace the rows of the slots in the tables."""
        from keras import ops

        # Stack the newest frames, in which an episode's first step sees nothing before it.
        if self._kept_steps:
            tables.put("observations", slot * self._kept_steps + inputs["t"], inputs["observation"])
        first = is_set(inputs["flags"], FIRST)  # [N]
        observation = self._agent.body.prepare(inputs["observation"])
        observation, frames = stack_step(tables.take("frames", slot), first, observation)
        tables.put("frames", slot, frames)
        state = tables.take("state", slot)

        # Act. An episode's first step has no previous action or reward.
        outputs = self._agent.act(
            params,
            ActInputs(
                observation=observation,
                previous_action=without_first(
                    inputs["previous_action"], first, self._agent.body.action
                ),
                previous_reward=ops.where(first, 0.0, inputs["reward"]),
                first=first,
                slot=slot,
                noise=inputs["noise"],
            ),
            state,
            self._greedy,
        )
        tables.put("state", slot, outputs.state)
        result = {f"behaviour/{name}": value for name, value in outputs.behaviour.items()}
        return {**result, "action": outputs.action, "state_before": state}

    def _kept(self, tables: Tables, slots: Tensor) -> Tensor:
        """Return copies of the observations [E, T, *shape] of slots [E]."""
        from keras import ops

        rows = ops.expand_dims(slots * self._kept_steps, -1) + ops.arange(
            self._kept_steps, dtype="int32"
        )
        return tables.take("observations", rows)

    def dispatch(self, params: Params, inputs: Sequence[StepInputs]) -> "DispatchedBatch":
        """Start to compute the actions of all environments in one batch.

        Args:
            params: the parameters that act.
            inputs: the newest step of each group, with at most `max_batch` environments together.
        """
        count = sum(len(step.slots) for step in inputs)
        size = int(self._sizes[np.searchsorted(self._sizes, count)])
        arrays = {
            "observation": _join([step.observation for step in inputs], size),
            "flags": _join([step.flags for step in inputs], size),
            "reward": _join([step.reward for step in inputs], size),
            "previous_action": _join([step.previous_action for step in inputs], size),
            "noise": self.random.random((size, self._agent.noise_columns), np.float32),
        }
        if self._kept_steps:
            steps = [0 if step.kept is None else step.kept.newest for step in inputs]
            arrays["t"] = np.zeros(size, np.int32)
            arrays["t"][:count] = np.repeat(steps, [len(step.slots) for step in inputs])
        slots = np.full(size, self._spare_slot, np.int32)
        np.concatenate([step.slots for step in inputs], out=slots[:count])
        outputs = self._act(params, slots, arrays)
        read = ["action", *(f"behaviour/{name}" for name in self._agent.behaviour)]
        if self.in_flight > 1:
            self._backend.begin_copies([outputs[name] for name in read])
        for step in inputs:
            # Copied before another batch can write to these slots, whoever has them by then.
            if step.kept is not None and step.kept.newest == self._kept_steps - 1:
                step.kept.array = self._keep(step.slots)
        return DispatchedBatch(self._backend, outputs, read, count, size)

    def rehearse(self, params: Params, environments: int) -> None:
        """Compute a batch of padding alone, so that the first one of its size compiles nothing.

        No session's slot and no later number that is drawn on the host changes.
        """
        e = min(environments, int(self._sizes[-1]))
        spec = self._spec
        drawn = self.random.bit_generator.state
        padding = StepInputs(
            np.full(e, self._spare_slot, np.int32),
            np.zeros((e, *spec.observation.shape), spec.observation.dtype),
            np.full(e, FIRST, np.uint8),
            np.zeros(e, np.float32),
            spec.action.none(e),
        )
        self.run(params, [padding])
        self.random.bit_generator.state = drawn

    def run(self, params: Params, inputs: Sequence[StepInputs]) -> InferenceOutputs:
        """Compute the actions of all environments in one batch.

        Args:
            params: the parameters that act.
            inputs: as of `dispatch`.
        """
        return self.dispatch(params, inputs).result()


@dataclass
class DispatchedBatch(PendingOutputs):
    """A batch on the device, whose first `count` rows are no padding."""

    _backend: Backend
    _outputs: dict[str, Any]
    _read: list[str]  # names of the outputs that are always read
    count: int
    padded_rows: int

    @override
    def ready(self) -> bool:
        return self._backend.is_computed(self._outputs["action"])

    @override
    def result(self) -> InferenceOutputs:
        action, *behaviour = (np.asarray(self._outputs[name])[: self.count] for name in self._read)
        names = (name.removeprefix("behaviour/") for name in self._read[1:])
        return InferenceOutputs(
            action=action,
            behaviour=dict(zip(names, behaviour, strict=True)),
            padded_rows=self.padded_rows,
            _state_before=self._outputs["state_before"],
        )


def _join(parts: list[NDArray[Any]], size: int) -> NDArray[Any]:
    """Return the parts joined in new memory of length `size`; a single full one as it is."""
    if len(parts) == 1 and len(parts[0]) == size:
        return parts[0]
    joined = np.zeros((size, *parts[0].shape[1:]), parts[0].dtype)
    at = 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined
