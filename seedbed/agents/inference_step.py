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
class Answer:
    """What a batch gives back, on the host, rows in the order in which they were given."""

    action: NDArray[np.int32]  # [N]
    behaviour: dict[str, NDArray[Any]]  # [N, ...] each
    padded_rows: int
    _state_before: Any  # [padded, S] on the device
    _backend: Backend | None

    def state_before(self) -> NDArray[np.float32]:
        """The recurrent state [N, S] that the rows were answered from. Copied only when asked."""
        assert self._backend is not None
        state: NDArray[np.float32] = self._backend.to_host(self._state_before)
        return state[: len(self.action)]


class Policy(Protocol):
    """Answers batches. `InferenceStep` is the real one; the benchmark has one without a model."""

    def run(self, params: Params, rows: Sequence[StepInputs]) -> Answer:
        """Answer all rows in one batch."""


def padded_sizes(largest: int) -> list[int]:
    """Batch sizes that are compiled: powers of two and the sizes half way between them."""
    sizes, size = {largest}, 1
    while size < largest:
        sizes.add(size)
        if size >= 4:
            sizes.add(min(size + size // 2, largest))
        size *= 2
    return sorted(sizes)


class InferenceStep:
    """Joins rows, pads them to a compiled size, runs the agent, and unpacks the answer.

    Padding rows name the tables' spare last slot, which nobody reads. Call it from one thread.
    """

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
        from keras import ops

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

    def run(self, params: Params, rows: Sequence[StepInputs]) -> Answer:
        """Answer all rows in one batch of at most `max_batch` environments."""
        count = sum(len(row.slots) for row in rows)
        size = int(self._sizes[np.searchsorted(self._sizes, count)])
        inputs = {
            "observation": _join([row.observation for row in rows], size),
            "flags": _join([row.flags for row in rows], size),
            "reward": _join([row.reward for row in rows], size),
            "previous_action": _join([row.previous_action for row in rows], size),
            "noise": self.random.random((size, self._agent.noise_columns), np.float32),
        }
        slots = np.full(size, self._spare_slot, np.int32)
        np.concatenate([row.slots for row in rows], out=slots[:count])
        inputs["slot"] = slots
        outputs = self.engine.run(params, slots, inputs)
        to_host = self._backend.to_host
        return Answer(
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
    """Rows one after the other in new memory of `size` rows; one full part is passed as it is."""
    if len(parts) == 1 and len(parts[0]) == size:
        return parts[0]
    joined = np.zeros((size, *parts[0].shape[1:]), parts[0].dtype)
    at = 0
    for part in parts:
        joined[at : at + len(part)] = part
        at += len(part)
    return joined
