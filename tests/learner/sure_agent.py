"""V-trace with a policy that depends on what it sees from the first step on."""

from __future__ import annotations

from services.learner.agents.protocol import Body
from services.learner.agents.vtrace.agent import VtraceAgent
from services.learner.agents.vtrace.config import Options


class SureAgent(VtraceAgent):
    """An untrained policy is nearly uniform; a test that compares policies needs a sure one."""

    def __init__(self, options: Options, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        kernel = self.model.policy.kernel
        kernel.assign(100.0 * kernel)
