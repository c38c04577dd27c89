"""DQN from replay: R2D2's code without recurrence, trained on single transitions.

The dueling agent of "Deep In-GPU Experience Replay", section 4.2. With n steps a transition is
stored with the rows that complete its window.
"""

from __future__ import annotations

from pydantic import BaseModel

from services.learner.agents.dqn import config
from services.learner.agents.protocol import Body
from services.learner.agents.r2d2.agent import R2d2Agent


class DqnAgent(R2d2Agent):
    """See `agents.protocol.ReplayAgent`."""

    Options: type[BaseModel] = config.Options

    def __init__(self, options: config.Options, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        self.lookahead = options.n_steps - 1
