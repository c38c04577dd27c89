"""Options that several agents share. Imports no Keras, because the experiment's schema uses it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from seedbed.settings import Fraction, NonNegative, Positive, PositiveFloat, Section


class AgentOptions(Section):
    """Hyperparameters of an agent.

    Attributes:
        trains_from_replay: as of `seedbed.agents.protocol.Agent`.
        synchronous: as of `seedbed.agents.protocol.Agent`.
    """

    trains_from_replay: ClassVar[bool] = False
    synchronous: ClassVar[bool] = False

    discount: Fraction = 0.99
    """γ."""
    reward_clip: NonNegative = 0.0
    """Rewards are clipped to ± this in the loss; 0 does not clip."""
    life_loss_ends: bool = False
    """A lost life zeroes the discount in the loss; it resets nothing."""


class ActorCriticOptions(AgentOptions):
    """Hyperparameters of the actor-critic agents."""

    reward_scale: PositiveFloat = 1.0
    """Rewards are multiplied by this in the loss, before clipping."""
    entropy_cost: NonNegative = 0.01
    """Entropy coefficient."""
    baseline_cost: NonNegative = 0.5
    """Value function coefficient, of half the squared error."""


class QLearningOptions(AgentOptions):
    """Hyperparameters of the Q-learning agents."""

    trains_from_replay: ClassVar[bool] = True

    discount: Fraction = 0.997
    """γ."""
    n_steps: Positive = 5
    """Rewards of a target, before it bootstraps."""
    double_q: bool = True
    """The trained network chooses the action, the target network values it."""
    value_rescaling_epsilon: Fraction = 1e-3
    """ε of h(x) = sign(x) (√(|x| + 1) - 1) + εx; 0 does not rescale."""
    target_update_period: Positive = 2_500
    """Updates after which the target network is set to the parameters."""
    max_priority_weight: Fraction = 0.9
    """η: a priority is η max|δ| + (1 - η) mean|δ| of a sequence's errors δ."""
    dueling_units: Positive = Field(
        512, json_schema_extra={"resume": "the parameters' shapes follow from it"}
    )
    """Units of each of the two hidden layers."""
    epsilon_levels: Positive = 256
    """N: the environment in slot s explores with ε = 0.4^(1 + 7i / (N - 1)), i = s mod N. With 1
    all have 0.4.
    """
    evaluation_epsilon: Fraction = 1e-3
    """ε of evaluations."""
