"""The V-trace agent: a policy head, a value head, and how both are used."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops
from pydantic import BaseModel

from services.common.spec import ArraySpec
from services.learner.agents.protocol import ActInputs, ActOutputs, Body, Params, Unroll
from services.learner.agents.vtrace import config
from services.learner.agents.vtrace.loss import vtrace_loss
from services.learner.networks.initializers import GlorotUniform, Orthogonal

Tensor = Any


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


class VtraceAgent:
    """See `agents.protocol.Agent`."""

    Options: type[BaseModel] = config.Options
    noise_columns = 1

    def __init__(self, options: config.Options, body: Body, actions: int) -> None:
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

    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        """See `vtrace_loss`."""
        (logits, value, _), _ = self.model.stateless_call(
            params,
            [],
            unroll.observation,
            unroll.previous_action,
            unroll.previous_reward,
            unroll.first,
            unroll.state,
        )
        return vtrace_loss(logits, value, unroll, self.options)


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
