"""DQN from replay: R2D2's code without recurrence, trained on single transitions.

The dueling agent of "Deep In-GPU Experience Replay", section 4.2. With n steps a transition is
stored with the rows that complete its window.
"""

from __future__ import annotations

from keras import ops
from pydantic import BaseModel

from seedbed.agents.dqn import config
from seedbed.agents.protocol import Body, Unroll
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.agents.r2d2.loss import q_loss
from seedbed.types import Params, Tensor


class DqnAgent(R2d2Agent):
    """See `agents.protocol.ReplayAgent`."""

    Options: type[BaseModel] = config.Options

    def __init__(self, options: config.Options, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        self.lookahead = options.n_steps - 1

    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """See `q_loss`. The network sees two rows of a window: the one that is trained, and the one
        that its target bootstraps from. Nothing is recurrent, so nobody needs those in between.
        """
        rows, columns = unroll.first.shape[0], unroll.first.shape[1]
        at = window_end(unroll.first) * columns + ops.arange(columns, dtype="int32")

        def pick(x: Tensor) -> Tensor:
            return ops.take(ops.reshape(x, (rows * columns, *x.shape[2:])), at, axis=0)

        seen = ("observation", "previous_action", "previous_reward", "first")
        start = unroll._replace(**{name: getattr(unroll, name)[:1] for name in seen})
        end = unroll._replace(**{name: pick(getattr(unroll, name))[None] for name in seen})
        q = self._values(params, start)
        target_end = ops.stop_gradient(self._values(target_params, end))
        double_q = self.options.double_q
        end_q = ops.stop_gradient(self._values(params, end)) if double_q else target_end
        # Every row after the first as if it were the end: row 0's window reads no other one.
        return q_loss(
            ops.concatenate([q, *[end_q] * (rows - 1)], axis=0),
            ops.concatenate([target_end] * rows, axis=0),
            unroll, 1, weight, self.options,
        )  # fmt: skip


def window_end(first: Tensor) -> Tensor:
    """The row [B] int32 that the window from row 0 ends with: the first one after row 0 that no
    transition leaves, since the next row is `first` [R, B] bool; or the last one.
    """
    leaves_no_transition = ops.concatenate([first[2:], ops.ones_like(first[:1])], axis=0)
    return 1 + ops.argmax(ops.cast(leaves_no_transition, "int32"), axis=0)
