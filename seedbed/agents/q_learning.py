"""Base of the Q-learning agents: a dueling network, ε-greedy by slot, trained from replay."""

from typing import Literal

import keras
import numpy as np
from keras import ops
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.agents.exploration import exploration_table
from seedbed.agents.options import QLearningOptions
from seedbed.agents.protocol import ActInputs, ActOutputs, ReplayAgent, SequenceWindow
from seedbed.agents.q_loss import sequence_priority, td_errors
from seedbed.networks.body import Body
from seedbed.networks.dueling import Dueling
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor


class QModel(keras.Model):
    """A body with dueling heads."""

    def __init__(self, body: Body, actions: int, units: int) -> None:
        super().__init__(name="model")
        self.body = body
        self.dueling = Dueling(actions, units, body.policy)

    def call(
        self,
        observation: Tensor,
        previous_action: Tensor,
        previous_reward: Tensor,
        first: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return action values [R, B, A] and the state [B, S].

        Args:
            observation: [R, B, *stacked shape].
            previous_action: [R, B] int32, -1 on first steps.
            previous_reward: [R, B] float32, 0 on first steps.
            first: [R, B] bool, steps before which the state is zeroed.
            state: [B, S] float32.
        """
        features, state = self.body(observation, previous_action, previous_reward, first, state)
        return self.dueling(features), state


class QLearningAgent(ReplayAgent):
    """An agent with a `QModel`. Subclasses add `Options` and `loss`."""

    # Whether to explore, and which action then.
    noise_columns = 2
    evaluates: Literal["sample", "greedy"] = "greedy"

    def __init__(self, options: QLearningOptions, body: Body, actions: int) -> None:
        if body.action.kind != "discrete":
            raise ConfigError(
                f"agents with action values (dqn, r2d2) need one discrete action, and the "
                f"environment has {body.action}: use agent vtrace, ppo or a2c"
            )
        if body.has_mask:
            raise ConfigError(
                "agents with action values (dqn, r2d2) do not read action_mask, and would take "
                "actions that are not valid: use agent vtrace, ppo or a2c"
            )
        self.options = options
        self.body = body
        self.actions = actions
        self.target_update_period = options.target_update_period
        self._exploration = exploration_table(options.epsilon_levels)
        self.behaviour = {"chosen": ArraySpec((), "float32"), "best": ArraySpec((), "float32")}
        self.model = QModel(body, actions, options.dueling_units)
        self.model(*body.symbols())

    @override
    def act(self, params: Params, inputs: ActInputs, state: Tensor, greedy: bool) -> ActOutputs:
        (q, state), _ = self.model.stateless_call(params, [], *inputs.one_step(), state)
        q = q[0]  # [N, A]
        if greedy:
            epsilon: Tensor = self.options.evaluation_epsilon
        else:
            slot = inputs.slot % len(self._exploration)
            epsilon = ops.take(self._exploration, slot)
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
        chosen, best = window.behaviour["chosen"], window.behaviour["best"]
        errors, mask = td_errors(chosen[:-1], best, window, self.options, np)
        trained = slice(self.burn_in, self.burn_in + window.trained)
        priority: NDArray[np.float32] = sequence_priority(
            errors[trained], mask[trained], self.options.max_priority_weight, np
        )
        return priority.astype(np.float32)

    def forward(self, params: Params, inputs: tuple[Tensor, ...], state: Tensor) -> Tensor:
        """Return action values [R - burn_in, B, A] of the steps after the burn-in.

        Args:
            params: the parameters.
            inputs: those of `Body` for all R steps, without the state.
            state: [B, S] float32, the recurrent state before step 0.
        """
        start = self.burn_in
        if start:
            (_, state), _ = self.model.stateless_call(
                params, [], *(x[:start] for x in inputs), state
            )
            state = ops.stop_gradient(state)
        (q, _), _ = self.model.stateless_call(params, [], *(x[start:] for x in inputs), state)
        return ops.cast(q, "float32")
