"""The A2C agent: a synchronous actor-critic on n-step returns."""

from __future__ import annotations

from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.a2c.loss import a2c_loss
from seedbed.agents.a2c.options import A2cOptions
from seedbed.agents.actor_critic import ActorCriticAgent
from seedbed.agents.protocol import Unroll
from seedbed.types import Params, Tensor


class A2cAgent(ActorCriticAgent):
    """An actor-critic with `a2c_loss`."""

    Options: type[BaseModel] = A2cOptions
    synchronous = A2cOptions.synchronous

    @override
    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        return a2c_loss(*self.forward(params, unroll), unroll, self.options)
