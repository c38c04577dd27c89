"""Reinforcement learning agents. `AGENTS` names them without importing Keras."""

# `agent` of an experiment to module:Class.
AGENTS = {
    "a2c": "seedbed.agents.a2c.agent:A2cAgent",
    "dqn": "seedbed.agents.dqn.agent:DqnAgent",
    "ppo": "seedbed.agents.ppo.agent:PpoAgent",
    "r2d2": "seedbed.agents.r2d2.agent:R2d2Agent",
    "vtrace": "seedbed.agents.vtrace.agent:VtraceAgent",
}
