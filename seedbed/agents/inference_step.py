"""One inference batch: reset, stack, act. A pure function over the device tables of slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbed.agents.protocol import ActInputs, Agent
from seedbed.backends.protocol import Backend
from seedbed.networks.registry import prepared_frame
from seedbed.ops.frame_stack import stack_step, stack_unroll
from seedbed.spec import FIRST, ArraySpec, EnvironmentSpec, StepInputs
from seedbed.types import Params


@dataclass
class InferenceOutputs:
    """Outputs of a batch on the host, environments in the order of the inputs."""

    action: NDArray[np.int32]  # [N]
    behaviour: dict[str, NDArray[Any]]  # [N, ...] each
    padded_rows: int
    _state_before: Any  # [padded, S] on the device
    _backend: Backend | None

    def state_before(self) -> NDArray[np.float32]:
        """Return the recurrent state [N, S] before the step. Copies it from the device."""
        assert self._backend is not None
        state: NDArray[np.float32] = self._backend.to_host(self._state_before)
        return state[: len(self.action)]


class Policy(Protocol):
    """Interface of `InferenceStep`. Tests and benchmarks have implementations without a model."""

    def run(self, params: Params, inputs: Sequence[StepInputs]) -> InferenceOutputs:
        """Compute the actions of all environments in one batch."""


def padded_sizes(largest: int) -> list[int]:
    """Return the compiled batch sizes: powers of two and the sizes half way between them."""
    sizes, size = {largest}, 1
    while size < largest:
        sizes.add(size)
        if size >= 4:
            sizes.add(min(size + size // 2, largest))
        size *= 2
    return sorted(sizes)


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
        seed: int,
        greedy: bool = False,
    ) -> None:
        self._backend = backend
        self._agent = agent
        self._context = frame_stack - 1
        self._greedy = greedy
        self._spare_slot = slots
        self._sizes = np.array(padded_sizes(max_batch))
        self.random = np.random.default_rng(seed)
        tables: dict[str, ArraySpec] = {}
        if agent.body.state_size:
            tables["state"] = ArraySpec((agent.body.state_size,), "float32")
        if self._context:
            frame = prepared_frame(agent.body, spec.observation)
            tables["frames"] = ArraySpec((self._context, *frame.shape), frame.dtype)
        self.engine = backend.inference(self._function, tables, slots)

    def _function(
        self, params: Params, rows: dict[str, Any], inputs: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Compute outputs and new rows of the tables from rows of the tables and inputs."""
        from keras import ops

        # Stack the newest frames, in which an episode's first step sees nothing before it.
        first = ops.not_equal(ops.bitwise_and(inputs["flags"], np.uint8(FIRST)), 0)  # [N]
        observation = self._agent.body.prepare(inputs["observation"])
        new_rows: dict[str, Any] = {}
        if self._context:
            observation, new_rows["frames"] = stack_step(rows["frames"], first, observation)
        else:
            observation = stack_unroll(observation[None], first[None], 1)[0]
        if self._agent.body.state_size:
            state = rows["state"]
        else:
            state = ops.zeros((ops.shape(first)[0], 0), "float32")

        # Act. An episode's first step has no previous action or reward.
        outputs = self._agent.act(
            params,
            ActInputs(
                observation=observation,
                previous_action=ops.where(first, -1, inputs["previous_action"]),
                previous_reward=ops.where(first, 0.0, inputs["reward"]),
                first=first,
                slot=inputs["slot"],
                noise=inputs["noise"],
            ),
            state,
            self._greedy,
        )
        if self._agent.body.state_size:
            new_rows["state"] = outputs.state
        result = {f"behaviour/{name}": value for name, value in outputs.behaviour.items()}
        return {**result, "action": outputs.action, "state_before": state}, new_rows

    def run(self, params: Params, inputs: Sequence[StepInputs]) -> InferenceOutputs:
        """Compute the actions of at most `max_batch` environments in one batch."""
        count = sum(len(step.slots) for step in inputs)
        size = int(self._sizes[np.searchsorted(self._sizes, count)])
        arrays = {
            "observation": _join([step.observation for step in inputs], size),
            "flags": _join([step.flags for step in inputs], size),
            "reward": _join([step.reward for step in inputs], size),
            "previous_action": _join([step.previous_action for step in inputs], size),
            "noise": self.random.random((size, self._agent.noise_columns), np.float32),
        }
        slots = np.full(size, self._spare_slot, np.int32)
        np.concatenate([step.slots for step in inputs], out=slots[:count])
        arrays["slot"] = slots
        outputs = self.engine.run(params, slots, arrays)
        to_host = self._backend.to_host
        return InferenceOutputs(
            action=to_host(outputs["action"])[:count],
            behaviour={
                name: to_host(outputs[f"behaviour/{name}"])[:count]
                for name in self._agent.behaviour
            },
            padded_rows=size,
            _state_before=outputs["state_before"],
            _backend=self._backend,
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
