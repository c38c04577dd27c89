"""From a batch's arrays to an agent's loss: flags apart, frames stacked, on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from keras import ops

from seedbed.agents.protocol import Agent, OnPolicyAgent, ReplayAgent, Unroll
from seedbed.ops.frame_stack import stack_unroll
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, TRUNCATED, ArraySpec
from seedbed.types import Params, Tensor

Loss = Callable[[Params, Params, dict[str, Any]], tuple[Tensor, dict[str, Tensor]]]


class Frames(Protocol):
    """What of an unroll's or a sequence's spec says how its frames are stacked."""

    @property
    def observation(self) -> ArraySpec: ...
    @property
    def frame_stack(self) -> int: ...


def train_function(agent: OnPolicyAgent, frames: Frames) -> Loss:
    """The agent's loss as a function of parameters and `TrainingBatch.arrays`."""

    def function(
        params: Params, _: Params, arrays: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return agent.loss(params, unroll_of(agent, frames, arrays))

    return function


def replay_function(
    agent: ReplayAgent, frames: Frames, importance_sampling_exponent: float
) -> Loss:
    """The agent's loss as a function of parameters, those of the target network, and the arrays
    of a sample from replay. With its scalars it gives `priority` [B].
    """

    def function(
        params: Params, target_params: Params, arrays: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weight = importance_weights(arrays["probability"], importance_sampling_exponent)
        unroll = unroll_of(agent, frames, arrays)
        loss, scalars, priority = agent.loss(params, target_params, unroll, weight)
        return loss, {**scalars, "priority": priority}

    return function


def importance_weights(probability: Tensor, exponent: float) -> Tensor:
    """(N P)^-β divided by the batch's largest, in which N falls out (Schaul et al. 2016, section
    3.4). `probability` is [B] float32, of each sequence having been drawn.
    """
    weight = ops.power(probability, -exponent)
    return weight / ops.max(weight)


def unroll_of(agent: Agent, spec: Frames, arrays: dict[str, Any]) -> Unroll:
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
