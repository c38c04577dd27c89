"""One update, from the arrays of a training batch to an agent's loss.

In this order, all in one compiled call (`Trainer.step` of `seedbed.backends`):

1. Split the flags and stack the frames (`unroll_of`).
2. With replay, weight the sequences (`importance_weights`).
3. Compute the agent's loss and, with replay, new priorities (`on_policy_loss`, `replay_loss`).
4. Differentiate, clip the gradients by their global norm, apply the optimizer.

After every `target_update_period` of them, the target network is set to the parameters.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from seedbed.agents.protocol import Agent, OnPolicyAgent, ReplayAgent, Unroll
from seedbed.networks.body import without_first
from seedbed.ops.flags import is_set
from seedbed.ops.frame_stack import stack_unroll
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, TRUNCATED
from seedbed.types import Params, Tensor

# Of parameters, those of the target network, and a batch's arrays.
Loss = Callable[[Params, Params, dict[str, Any]], tuple[Tensor, dict[str, Tensor]]]

_BEHAVIOUR = "behaviour/"


def on_policy_loss(agent: OnPolicyAgent, frame_stack: int) -> Loss:
    """Return the agent's loss as a function of `TrainingBatch.arrays`.

    The function takes the trained parameters, an empty list, and the arrays. It returns the loss
    and scalars to log.

    Args:
        agent: the agent.
        frame_stack: K.
    """

    def loss(params: Params, _: Params, arrays: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        value, scalars = agent.loss(params, unroll_of(agent, frame_stack, arrays))
        return value + observation_statistics_loss(agent, params, frame_stack, arrays), scalars

    return loss


def replay_loss(agent: ReplayAgent, frame_stack: int, importance_sampling_exponent: float) -> Loss:
    """Return the agent's loss as a function of the arrays of a sample from replay.

    The function takes the trained parameters, those of the target network, and the arrays. It
    returns the loss, and with the scalars to log the new `priority` [B].

    Args:
        agent: the agent.
        frame_stack: K.
        importance_sampling_exponent: β.
    """

    def loss(
        params: Params, target_params: Params, arrays: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        unroll = unroll_of(agent, frame_stack, arrays)
        weight = importance_weights(arrays["probability"], importance_sampling_exponent)
        value, scalars, priority = agent.loss(params, target_params, unroll, weight)
        value = value + observation_statistics_loss(agent, params, frame_stack, arrays)
        return value, {**scalars, "priority": priority}

    return loss


def importance_weights(probability: Tensor, exponent: float) -> Tensor:
    """Return (N P)^-β divided by the batch's largest, in which N cancels out.

    See Schaul et al. 2016 (arXiv:1511.05952), section 3.4.

    Args:
        probability: [B] float32, P, with which each sequence was sampled.
        exponent: β.
    """
    weight = ops.power(probability, -exponent)
    return weight / ops.max(weight)


def observation_statistics_loss(
    agent: Agent, params: Params, frame_stack: int, arrays: dict[str, Any]
) -> Tensor | float:
    """Return 0, whose gradient counts a batch's observations where they are normalized.

    Columns of first steps alone are padding, and do not count.

    Args:
        agent: the agent.
        params: the trained parameters.
        frame_stack: K.
        arrays: the batch's arrays on the device, by name.
    """
    normalizer = agent.body.normalizer
    if normalizer is None:
        return 0.0
    context = frame_stack - 1
    frames, flags = arrays["observation"][context:], arrays["flags"][context:]  # [R, B, ...]
    first = is_set(flags, FIRST)
    is_there = ops.broadcast_to(~ops.all(first, axis=0), first.shape)
    weight = ops.cast(agent.body.flatten(is_there), "float32")
    statistics = normalizer.of(agent.model, params)
    return normalizer.loss(statistics, agent.body.flatten(frames), weight)


def unroll_of(agent: Agent, frame_stack: int, arrays: dict[str, Any]) -> Unroll:
    """Return the batch as the training forward pass takes it. Pure; runs in the compiled step.

    Args:
        agent: the agent.
        frame_stack: K.
        arrays: the batch's arrays on the device, by name.
    """
    context = frame_stack - 1
    frames, flags = arrays["observation"], arrays["flags"]  # [K-1+R, B, *shape], [K-1+R, B]

    first = is_set(flags, FIRST)

    # Prepare each frame once, then stack.
    body = agent.body
    prepared = body.unflatten(body.prepare(body.flatten(frames)), frames.shape[0])
    observation = stack_unroll(prepared, first, frame_stack)  # [R, B, *stacked]

    # An episode's first step has no previous action or reward.
    first = first[context:]  # [R, B]
    previous = ops.concatenate([arrays["previous_action"][None], arrays["action"]], axis=0)
    return Unroll(
        observation=observation,
        previous_action=without_first(previous, first, body.action),
        previous_reward=ops.where(first, 0.0, arrays["reward"]),
        action=arrays["action"],
        reward=arrays["reward"],
        terminated=is_set(flags, TERMINATED)[context:],
        truncated=is_set(flags, TRUNCATED)[context:],
        life_lost=is_set(flags, LIFE_LOST)[context:],
        first=first,
        behaviour={
            name.removeprefix(_BEHAVIOUR): value
            for name, value in arrays.items()
            if name.startswith(_BEHAVIOUR)
        },
        state=arrays["state"],
    )
