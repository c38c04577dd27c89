"""Options that several agents share. Imports no Keras, because the experiment's schema uses it."""

from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import override

from seedbed.agents.exploration import exploration_range
from seedbed.settings import (
    FREE,
    RESULT,
    SHAPES,
    Fraction,
    KeyClass,
    NonNegative,
    Positive,
    PositiveFloat,
    Section,
    identity,
)


class AgentOptions(Section):
    """Hyperparameters of an agent.

    Attributes:
        trains_from_replay: as of `seedbed.agents.protocol.Agent`.
        synchronous: as of `seedbed.agents.protocol.Agent`.
        passes: `learner.epochs_per_batch` where it is 0.
        minibatches: `learner.minibatches` where it is 0.
        queue_batches: `learner.queue_batches` where it is null.
        initial_weights: `learner.initial_weights` where it is `default`.
        normalization_frames: `learner.normalization_frames` where it is null.
    """

    key_class: ClassVar[KeyClass] = RESULT
    trains_from_replay: ClassVar[bool] = False
    synchronous: ClassVar[bool] = False
    passes: ClassVar[int] = 1
    minibatches: ClassVar[int] = 1
    queue_batches: ClassVar[int] = 1
    initial_weights: ClassVar[str] = "default"
    normalization_frames: ClassVar[int] = 0

    discount: Fraction = 0.99
    """Discount γ of a step."""
    reward_clip: NonNegative = 0.0
    """Largest magnitude of a reward in the loss, to which rewards are clipped; 0 does not clip."""
    optimistic_asymmetric_clip: bool = False
    """Clipping of IMPALA's DeepMind Lab agents in place of `reward_clip`:
    0.3 min(tanh r, 0) + 5 max(tanh r, 0), which weighs a gain 17 times a loss.
    """
    life_loss_ends: bool = False
    """End of returns at a lost life: the discount is zero there in the loss; nothing is reset."""

    @model_validator(mode="after")
    def _one_clip(self) -> Self:
        if self.reward_clip and self.optimistic_asymmetric_clip:
            raise ValueError(
                f"reward_clip {self.reward_clip:g} and optimistic_asymmetric_clip are two ways to "
                "clip: set one of them back"
            )
        return self

    def exploration(self, slots: NDArray[np.int32]) -> tuple[float, float] | None:
        """Return the lowest and the highest ε of environments; None where an agent has none.

        Args:
            slots: [n] slots of the environments, at least one.
        """
        return None


class ActorCriticOptions(AgentOptions):
    """Hyperparameters of the actor-critic agents."""

    reward_scale: PositiveFloat = 1.0
    """Factor of the rewards in the loss, before clipping."""
    normalize_returns: Annotated[bool, identity("the statistics are parameters")] = False
    """Rewards divided by the running standard deviation of the discounted return within an unroll,
    and clipped to ±10; before `reward_scale` and clipping. Values are of such rewards.
    """
    entropy_cost: NonNegative = 0.01
    """Entropy coefficient."""
    baseline_cost: NonNegative = 0.5
    """Value function coefficient, of half the squared error."""
    squash: Annotated[bool, identity("the policy was trained with it")] = False
    """Map of continuous actions to the bounds: tanh (true), or clipping (false)."""


class QLearningOptions(AgentOptions):
    """Hyperparameters of the Q-learning agents."""

    trains_from_replay: ClassVar[bool] = True

    discount: Fraction = 0.997
    """Discount γ of a step."""
    n_steps: Positive = 5
    """Rewards of a target, before the target bootstraps."""
    double_q: bool = True
    """Double Q-learning: the trained network chooses the action, the target network values it."""
    value_rescaling_epsilon: Fraction = 1e-3
    """Constant ε of h(x) = sign(x) (√(|x| + 1) - 1) + εx; 0 does not rescale."""
    target_update_period: Positive = 2_500
    """Updates after which the target network is set to the parameters."""
    max_priority_weight: Fraction = 0.9
    """Weight η: a priority is η max|δ| + (1 - η) mean|δ| of the errors δ of a sequence."""
    dueling_units: Annotated[Positive, SHAPES] = 512
    """Units of each of the two hidden layers."""
    epsilon_levels: Annotated[int, Field(ge=0)] = 0
    """Levels N of exploration: the environment in slot s explores with ε = 0.4^(1 + 7i / (N - 1)),
    i = s mod N. With 1 all have 0.4. With 0 the levels follow the environments that are connected:
    the first two have 0.4 and 0.4^8, and each other one has a level between two earlier ones.
    """
    evaluation_epsilon: Annotated[Fraction, FREE] = 1e-3
    """Exploration ε of evaluations."""

    @override
    def exploration(self, slots: NDArray[np.int32]) -> tuple[float, float] | None:
        return exploration_range(slots, self.epsilon_levels)
