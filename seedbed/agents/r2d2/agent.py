"""R2D2 on central inference: a recurrent dueling network, ε-greedy by slot, trained from replay."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from pydantic import BaseModel

from seedbed.agents.protocol import ActInputs, ActOutputs, Body, Unroll, Window
from seedbed.agents.r2d2 import config
from seedbed.agents.r2d2.loss import q_loss, sequence_priority, td_errors
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
        """The body's arguments to action values [R, B, A] and the state [B, S]."""
        features, state = self.body(observation, previous_action, previous_reward, first, state)
        return self.dueling(features), state


def exploration(slot: Tensor, levels: int, xp: Any) -> Tensor:
    """ε of slots [N]: 0.4^(1 + 7i / (levels - 1)) for i = slot mod levels (Table 8), [N] float32.

    One level is 0.4. `xp` is `keras.ops` or NumPy.
    """
    level = xp.cast(slot % levels, "float32") if xp is ops else np.float32(slot % levels)
    return 0.4 ** (1.0 + 7.0 * level / max(1, levels - 1))


class R2d2Agent:
    """See `agents.protocol.ReplayAgent`."""

    Options: type[BaseModel] = config.Options
    noise_columns = 2  # whether to explore, and which action then
    evaluates: Literal["sample", "greedy"] = "greedy"

    def __init__(self, options: config.QLearning, body: Body, actions: int) -> None:
        self.options = options
        self.body = body
        self.actions = actions
        self.burn_in = getattr(options, "burn_in", 0)
        self.lookahead = 0
        self.target_update_period = options.target_update_period
        self.behaviour = {"chosen": ArraySpec((), "float32"), "best": ArraySpec((), "float32")}
        self.model = QModel(body, actions, options.dueling_units)
        self.model(*body.zeros())

    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        """The best action, or with probability ε any. `greedy` takes the evaluation's ε."""
        rows = (inputs.observation, inputs.previous_action, inputs.previous_reward, inputs.first)
        (q, state), _ = self.model.stateless_call(
            params, [], *(ops.expand_dims(x, 0) for x in rows), state
        )
        q = q[0]  # [N, A]
        if greedy:
            epsilon: Tensor = self.options.evaluation_epsilon
        else:
            epsilon = exploration(inputs.slot, self.options.epsilon_levels, ops)
        best = ops.cast(ops.argmax(q, axis=-1), "int32")
        # A number that became 1 when it was rounded to float32 names the last action.
        drawn = ops.cast(inputs.noise[:, 1] * self.actions, "int32")
        drawn = ops.minimum(drawn, self.actions - 1)
        action = ops.where(inputs.noise[:, 0] < epsilon, drawn, best)
        chosen = ops.sum(q * ops.one_hot(action, self.actions, dtype="float32"), axis=-1)
        return ActOutputs(action, {"chosen": chosen, "best": ops.max(q, axis=-1)}, state)

    def initial_priority(self, window: Window) -> NDArray[np.float32]:
        """From the action values of acting, in place of both networks'."""
        start, stop = self.burn_in, self.burn_in + window.trained
        ends = window.terminated
        if self.options.life_loss_ends:
            ends = ends | window.life_lost
        errors, mask = td_errors(
            window.behaviour["chosen"][:-1], window.behaviour["best"], window.reward, ends,
            window.first, self.options, np,
        )  # fmt: skip
        priority: NDArray[np.float32] = sequence_priority(
            errors[start:stop], mask[start:stop], self.options.max_priority_weight, np
        )
        return priority.astype(np.float32)

    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """See `q_loss`. The rows before `burn_in` only bring the recurrent states up to date."""
        trained = unroll.action.shape[0] - self.burn_in - self.lookahead
        q = self._values(params, unroll)
        target_q = ops.stop_gradient(self._values(target_params, unroll))
        return q_loss(q, target_q, after(unroll, self.burn_in), trained, weight, self.options)

    def _values(self, params: Params, unroll: Unroll) -> Tensor:
        """Action values [R - burn_in, B, A] of the rows after the burn-in."""
        state = unroll.state
        start = self.burn_in
        inputs = (
            unroll.observation, unroll.previous_action, unroll.previous_reward, unroll.first,
        )  # fmt: skip
        if start:
            (_, state), _ = self.model.stateless_call(
                params, [], *(x[:start] for x in inputs), state
            )
            state = ops.stop_gradient(state)
        (q, _), _ = self.model.stateless_call(params, [], *(x[start:] for x in inputs), state)
        return ops.cast(q, "float32")


def after(unroll: Unroll, rows: int) -> Unroll:
    """An unroll without its first rows; its state is that of row 0 still."""
    return Unroll(
        observation=unroll.observation[rows:],
        previous_action=unroll.previous_action[rows:],
        previous_reward=unroll.previous_reward[rows:],
        action=unroll.action[rows:],
        reward=unroll.reward[rows:],
        terminated=unroll.terminated[rows:],
        truncated=unroll.truncated[rows:],
        life_lost=unroll.life_lost[rows:],
        first=unroll.first[rows:],
        behaviour={name: value[rows:] for name, value in unroll.behaviour.items()},
        state=unroll.state,
    )
