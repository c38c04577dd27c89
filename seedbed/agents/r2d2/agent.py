"""R2D2 on central inference: recurrent Q-learning on sequences (Kapturowski et al. 2019)."""

import keras
from keras import ops
from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.protocol import Unroll
from seedbed.agents.q_learning import QLearningAgent
from seedbed.agents.q_loss import q_loss
from seedbed.agents.r2d2.options import R2d2Options
from seedbed.networks.body import Body
from seedbed.types import Params, Tensor


class R2d2Agent(QLearningAgent):
    """Q-learning on sequences, whose first `burn_in` steps only warm up the recurrent state."""

    Options: type[BaseModel] = R2d2Options

    def __init__(self, options: R2d2Options, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        self.burn_in = options.burn_in

    @override
    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, importance_weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        # Both networks warm up a state of their own, from the stored one.
        online_q = self.forward(params, unroll.steps(), unroll.state)
        target_q = ops.stop_gradient(self.forward(target_params, unroll.steps(), unroll.state))
        trained = unroll.action.shape[0] - self.burn_in - self.lookahead
        return q_loss(
            online_q,
            target_q,
            skip_steps(unroll, self.burn_in),
            trained,
            importance_weight,
            self.options,
        )


def skip_steps(unroll: Unroll, steps: int) -> Unroll:
    """Return an unroll without its first steps. Its state is still the one before step 0."""
    later: Unroll = keras.tree.map_structure(lambda array: array[steps:], unroll)
    return later._replace(state=unroll.state)
