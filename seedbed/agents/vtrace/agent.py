"""The V-trace agent: an actor-critic with the V-trace loss."""

from __future__ import annotations

from pydantic import BaseModel

from seedbed.agents.policy import PolicyAgent
from seedbed.agents.protocol import Unroll
from seedbed.agents.vtrace import config
from seedbed.agents.vtrace.loss import vtrace_loss
from seedbed.types import Params, Tensor


class VtraceAgent(PolicyAgent):
    """See `agents.protocol.Agent`."""

    Options: type[BaseModel] = config.Options

    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        """See `vtrace_loss`."""
        return vtrace_loss(*self.outputs(params, unroll), unroll, self.options)
