"""Agents with a policy that depends on what it sees from the first step on."""

from __future__ import annotations

import numpy as np

from seedbed.agents.a2c.agent import A2cAgent
from seedbed.agents.a2c.options import A2cOptions
from seedbed.agents.ppo.agent import PpoAgent
from seedbed.agents.ppo.options import PpoOptions
from seedbed.agents.protocol import Body
from seedbed.agents.vtrace.agent import VtraceAgent
from seedbed.agents.vtrace.options import VtraceOptions


class SureAgent(VtraceAgent):
    """V-trace. An untrained policy is nearly uniform; to compare policies takes a sure one."""

    def __init__(self, options: VtraceOptions, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        kernel = self.model.policy.kernel
        kernel.assign(100.0 * kernel)


class SureA2c(A2cAgent):
    """The same of A2C."""

    def __init__(self, options: A2cOptions, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        kernel = self.model.policy.kernel
        kernel.assign(100.0 * kernel)


class SurePpo(PpoAgent):
    """The same of PPO, of observations that no other number than theirs normalizes."""

    def __init__(self, options: PpoOptions, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        kernel = self.model.policy.kernel
        kernel.assign(100.0 * kernel)
        if body.normalizer is not None:
            statistics = body.normalizer.statistics
            rng = np.random.default_rng(7)
            statistics.assign(rng.uniform(0.5, 2.0, tuple(statistics.shape)))
