"""What actor-critic agents share: the model, how it acts, and the rows that a loss counts."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import keras
from keras import ops

from seedbed.agents.protocol import ActInputs, ActOutputs, Body, Unroll
from seedbed.networks.initializers import GlorotUniform, Orthogonal
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor


class PolicyModel(keras.Model):
    """A body with a softmax policy and a value."""

    def __init__(self, body: Body, actions: int) -> None:
        super().__init__(name="model")
        self.body = body
        # Nearly uniform at first, and while the value's gradient makes the features grow: through
        # a head of usual size that alone ends exploration within a hundred updates of Pong.
        self.policy = keras.layers.Dense(
            actions, kernel_initializer=Orthogonal(0.01), dtype="float32", name="policy"
        )
        self.value = keras.layers.Dense(
            1, kernel_initializer=GlorotUniform(), dtype="float32", name="value"
        )

    def call(
        self,
        observation: Tensor,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The body's arguments to logits [R, B, A], values [R, B] and the state [B, S]."""
        features, state = self.body(observation, previous_action, previous_reward, first, state)
        return self.policy(features), ops.squeeze(self.value(features), -1), state


class PolicyAgent:
    """An agent with a `PolicyModel`, but for its `Options` and its loss. See `agents.protocol`."""

    noise_columns = 1
    evaluates: Literal["sample", "greedy"] = "sample"

    def __init__(self, options: Any, body: Body, actions: int) -> None:
        self.options = options
        self.body = body
        self.behaviour = {"logits": ArraySpec((actions,), "float32")}
        self.model = PolicyModel(body, actions)
        self.model(*body.zeros())

    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        """Sample from the policy, or take its mode."""
        rows = (inputs.observation, inputs.previous_action, inputs.previous_reward, inputs.first)
        (logits, _, state), _ = self.model.stateless_call(
            params, [], *(ops.expand_dims(x, 0) for x in rows), state
        )
        logits = logits[0]  # [N, A]
        if greedy:
            action = ops.cast(ops.argmax(logits, axis=-1), "int32")
        else:
            action = sample(logits, inputs.noise[:, 0])
        return ActOutputs(action, {"logits": logits}, state)

    def outputs(self, params: Params, unroll: Unroll) -> tuple[Tensor, Tensor]:
        """The training forward pass: logits [R, B, A] and values [R, B]."""
        (logits, value, _), _ = self.model.stateless_call(
            params,
            [],
            unroll.observation,
            unroll.previous_action,
            unroll.previous_reward,
            unroll.first,
            unroll.state,
        )
        return logits, value


def sample(logits: Tensor, uniform: Tensor) -> Tensor:
    """Actions [N] int32 from logits [N, A] and uniform numbers [N] in [0, 1), by the inverse of
    the cumulative distribution.
    """
    cumulative = ops.cumsum(ops.softmax(logits, axis=-1), axis=-1)  # [N, A]
    # The last sum is 1 but for rounding: measured against it, nothing below 1 falls behind the end.
    point = ops.expand_dims(uniform, -1) * cumulative[:, -1:]
    action = ops.sum(ops.cast(point >= cumulative, "int32"), axis=-1)
    # A number that became 1 when it was rounded to float32 would.
    return ops.minimum(action, logits.shape[-1] - 1)


class RewardOptions(Protocol):
    """The hyperparameters that say what a transition earns."""

    @property
    def discount(self) -> float: ...
    @property
    def reward_clip(self) -> float: ...
    @property
    def reward_scale(self) -> float: ...
    @property
    def life_loss_ends(self) -> bool: ...


class Transitions(NamedTuple):
    """The T transitions of an unroll, as a loss sees them."""

    mask: Tensor  # [T, B] float32, 1 for real ones and 0 for those out of a finished row
    discount: Tensor  # [T, B] float32, γ, or 0 where the destination is terminal
    reward: Tensor  # [T, B] float32, scaled and clipped


def transitions(unroll: Unroll, options: RewardOptions) -> Transitions:
    """What the rows' flags and rewards say of the transitions between them."""
    end = unroll.terminated[1:]
    if options.life_loss_ends:
        end = end | unroll.life_lost[1:]
    reward = unroll.reward[1:] * options.reward_scale
    if options.reward_clip:
        reward = ops.clip(reward, -options.reward_clip, options.reward_clip)
    return Transitions(
        mask=ops.cast(~unroll.first[1:], "float32"),
        discount=options.discount * (1.0 - ops.cast(end, "float32")),
        reward=reward,
    )


def chosen(log_policy: Tensor, action: Tensor) -> Tensor:
    """[T, B, A] and [T, B] int32 to the chosen action's [T, B]."""
    one_hot = ops.one_hot(action, log_policy.shape[-1], dtype="float32")
    return ops.sum(log_policy * one_hot, axis=-1)
