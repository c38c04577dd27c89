"""DQN from replay: Q-learning on single transitions, without recurrence.

The dueling agent of "Deep In-GPU Experience Replay" (arXiv:1801.03138), section 4.2. With n steps a
transition is stored with the steps that complete its target.
"""

from collections.abc import Callable

from keras import ops
from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.protocol import Unroll
from seedbed.agents.q_learning import QLearningAgent
from seedbed.agents.q_loss import q_loss
from seedbed.networks.body import Body
from seedbed.types import Params, Tensor


class DqnAgent(QLearningAgent):
    """Q-learning on single transitions."""

    Options: type[BaseModel] = DqnOptions

    def __init__(self, options: DqnOptions, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        self.lookahead = options.n_steps - 1

    @override
    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, importance_weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        # The network sees two steps of a window: the trained one, and the one that its target
        # bootstraps from. Nothing is recurrent, so that the steps in between are not needed.
        steps, batch = unroll.first.shape[0], unroll.first.shape[1]
        end_index = window_end(unroll.first) * batch + ops.arange(batch, dtype="int32")

        def start(x: Tensor) -> Tensor:
            return x[:1]

        def end(x: Tensor) -> Tensor:
            flat = ops.reshape(x, (steps * batch, *x.shape[2:]))
            return ops.take(flat, end_index, axis=0)[None]

        def q_at(params: Params, step: Callable[[Tensor], Tensor]) -> Tensor:
            return self.forward(params, tuple(step(x) for x in unroll.steps()), unroll.state)

        start_q = q_at(params, start)
        target_end_q = ops.stop_gradient(q_at(target_params, end))
        end_q = ops.stop_gradient(q_at(params, end)) if self.options.double_q else target_end_q
        # Every step after the first stands for the end: the window of step 0 reads no other one.
        return q_loss(
            ops.concatenate([start_q, *[end_q] * (steps - 1)], axis=0),
            ops.concatenate([target_end_q] * steps, axis=0),
            unroll,
            1,
            importance_weight,
            self.options,
        )


def window_end(first: Tensor) -> Tensor:
    """Return the step [B] int32 at which the window of step 0 ends.

    It is the first step after step 0 that no transition leaves, or the last step.

    Args:
        first: [R, B] bool.
    """
    leaves_no_transition = ops.concatenate([first[2:], ops.ones_like(first[:1])], axis=0)
    return 1 + ops.argmax(ops.cast(leaves_no_transition, "int32"), axis=0)
