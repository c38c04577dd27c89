"""The V-trace agent: an actor-critic that corrects for the lag of the policy that acted."""

from __future__ import annotations

from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.actor_critic import ActorCriticAgent
from seedbed.agents.protocol import Unroll
from seedbed.agents.vtrace.loss import vtrace_loss
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.types import Params, Tensor


class VtraceAgent(ActorCriticAgent):
    """An actor-critic with `vtrace_loss`."""

    Options: type[BaseModel] = VtraceOptions

    @override
    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        return vtrace_loss(*self.forward(params, unroll), unroll, self.options)
