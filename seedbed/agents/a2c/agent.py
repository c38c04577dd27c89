"""The A2C agent: a synchronous actor-critic on n-step returns."""

from __future__ import annotations

from pydantic import BaseModel

from seedbed.agents.a2c import config
from seedbed.agents.a2c.loss import a2c_loss
from seedbed.agents.policy import PolicyAgent
from seedbed.agents.protocol import Unroll
from seedbed.types import Params, Tensor


class A2cAgent(PolicyAgent):
    """See `agents.protocol.OnPolicyAgent`."""

    Options: type[BaseModel] = config.Options
    synchronous = True

    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        """See `a2c_loss`."""
        return a2c_loss(*self.outputs(params, unroll), unroll, self.options)
