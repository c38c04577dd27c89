"""Base of the Q-learning agents: a dueling network, ε-greedy by slot, trained from replay."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.agents.options import QLearningOptions
from seedbed.agents.protocol import ActInputs, ActOutputs, Body, ReplayAgent, SequenceWindow, Unroll
from seedbed.agents.q_loss import sequence_priority, td_errors
from seedbed.networks.dueling import Dueling
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor


class QModel(keras.Model):
    """A body with dueling heads."""

    def __init__(self, body: Body, actions: int, units: int) -> None:
        super().__init__(name="model")
        self.body = body
        self.dueling = Dueling(actions, units)

    def call(
        self,
        observation: Tensor,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return action values [R, B, A] and the state [B, S]. Arguments as of `Body`."""
        features, state = self.body(observation, previous_action, previous_reward, first, state)
        return self.dueling(features), state


def exploration_epsilon(slot: Tensor, levels: int, xp: Any) -> Tensor:
    """Return ε of each slot: 0.4^(1 + 7i / (levels - 1)) for i = slot mod levels (Table 8).

    Args:
        slot: [N] int32.
        levels: different values of ε; a single one is 0.4.
        xp: `keras.ops` or NumPy.

    Returns:
        [N] float32.
    """
    level = xp.cast(slot % levels, "float32") if xp is ops else np.float32(slot % levels)
    return 0.4 ** (1.0 + 7.0 * level / max(1, levels - 1))


class QLearningAgent(ReplayAgent):
    """An agent with a `QModel`. Subclasses add `Options` and `loss`."""

    # Whether to explore, and which action then.
    noise_columns = 2
    evaluates: Literal["sample", "greedy"] = "greedy"

    def __init__(self, options: QLearningOptions, body: Body, actions: int) -> None:
        self.options = options
        self.body = body
        self.actions = actions
        self.target_update_period = options.target_update_period
        self.behaviour = {"chosen": ArraySpec((), "float32"), "best": ArraySpec((), "float32")}
        self.model = QModel(body, actions, options.dueling_units)
        self.model(*body.zeros())

    @override
    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        steps = (inputs.observation, inputs.previous_action, inputs.previous_reward, inputs.first)
        (q, state), _ = self.model.stateless_call(
            params, [], *(ops.expand_dims(x, 0) for x in steps), state
        )
        q = q[0]  # [N, A]
        if greedy:
            epsilon: Tensor = self.options.evaluation_epsilon
        else:
            epsilon = exploration_epsilon(inputs.slot, self.options.epsilon_levels, ops)
        best = ops.cast(ops.argmax(q, axis=-1), "int32")
        # A number that float32 rounds up to 1 stands for the last action.
        random = ops.cast(inputs.noise[:, 1] * self.actions, "int32")
        random = ops.minimum(random, self.actions - 1)
        action = ops.where(inputs.noise[:, 0] < epsilon, random, best)
        chosen = ops.sum(q * ops.one_hot(action, self.actions, dtype="float32"), axis=-1)
        return ActOutputs(action, {"chosen": chosen, "best": ops.max(q, axis=-1)}, state)

    @override
    def initial_priority(self, window: SequenceWindow) -> NDArray[np.float32]:
        """Return priorities [E] from the action values of acting, in place of both networks'."""
        terminal = window.terminated
        if self.options.life_loss_ends:
            terminal = terminal | window.life_lost
        errors, mask = td_errors(
            window.behaviour["chosen"][:-1],
            window.behaviour["best"],
            window.reward,
            terminal,
            window.first,
            self.options,
            np,
        )
        trained = slice(self.burn_in, self.burn_in + window.trained)
        priority: NDArray[np.float32] = sequence_priority(
            errors[trained], mask[trained], self.options.max_priority_weight, np
        )
        return priority.astype(np.float32)

    def forward(self, params: Params, unroll: Unroll) -> Tensor:
        """Return action values [R - burn_in, B, A] of the steps after the burn-in."""
        inputs = (
            unroll.observation,
            unroll.previous_action,
            unroll.previous_reward,
            unroll.first,
        )
        state, start = unroll.state, self.burn_in
        if start:
            (_, state), _ = self.model.stateless_call(
                params, [], *(x[:start] for x in inputs), state
            )
            state = ops.stop_gradient(state)
        (q, _), _ = self.model.stateless_call(params, [], *(x[start:] for x in inputs), state)
        return ops.cast(q, "float32")
