"""From a batch's arrays to an agent's loss: flags apart, frames stacked, on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from services.learner.agents.protocol import Agent, Params, Tensor, Unroll
from services.learner.ops.frame_stack import stack_unroll
from services.learner.unrolls.unroll import FIRST, LIFE_LOST, TERMINATED, TRUNCATED, UnrollSpec


def train_function(
    agent: Agent, spec: UnrollSpec
) -> Callable[[Params, dict[str, Any]], tuple[Tensor, dict[str, Tensor]]]:
    """The agent's loss as a function of parameters and `TrainingBatch.arrays`."""

    def function(params: Params, arrays: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        return agent.loss(params, unroll_of(agent, spec, arrays))

    return function


def unroll_of(agent: Agent, spec: UnrollSpec, arrays: dict[str, Any]) -> Unroll:
    """What the training forward pass sees. Pure; runs inside the compiled step."""
    context, shape = spec.frame_stack - 1, spec.observation.shape
    frames, flags = arrays["observation"], arrays["flags"]  # [K-1+R, B, *shape], [K-1+R, B]
    rows, columns = frames.shape[0], frames.shape[1]
    prepared = agent.body.prepare(ops.reshape(frames, (rows * columns, *shape)))
    prepared = ops.reshape(prepared, (rows, columns, *prepared.shape[1:]))

    def bit(value: int) -> Any:
        return ops.not_equal(ops.bitwise_and(flags, np.uint8(value)), 0)

    first = bit(FIRST)
    observation = stack_unroll(prepared, first, spec.frame_stack)  # [R, B, *stacked]
    first = first[context:]  # [R, B]
    previous = ops.concatenate([arrays["previous_action"][None], arrays["action"]], axis=0)
    prefix = "behaviour/"
    return Unroll(
        observation=observation,
        previous_action=ops.where(first, -1, previous),
        previous_reward=ops.where(first, 0.0, arrays["reward"]),
        action=arrays["action"],
        reward=arrays["reward"],
        terminated=bit(TERMINATED)[context:],
        truncated=bit(TRUNCATED)[context:],
        life_lost=bit(LIFE_LOST)[context:],
        first=first,
        behaviour={
            name.removeprefix(prefix): value
            for name, value in arrays.items()
            if name.startswith(prefix)
        },
        state=arrays["state"],
    )
