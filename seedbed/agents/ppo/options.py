"""Options of PPO: the section `ppo` of an experiment."""

from typing import Annotated, ClassVar

from seedbed.agents.options import ActorCriticOptions
from seedbed.settings import Fraction, NonNegative, PositiveFloat, identity


class PpoOptions(ActorCriticOptions):
    """Hyperparameters of PPO (Schulman et al. 2017).

    The passes over a batch and their parts are `learner.epochs_per_batch` and
    `learner.minibatches`.
    """

    passes: ClassVar[int] = 4
    minibatches: ClassVar[int] = 4
    queue_batches: ClassVar[int] = 0
    initial_weights: ClassVar[str] = "orthogonal"
    normalization_frames: ClassVar[int] = 400_000

    normalize_returns: Annotated[bool, identity("the statistics are parameters")] = True
    """Rewards divided by the running standard deviation of the discounted return within an unroll,
    and clipped to ±10; before `reward_scale` and clipping. Values are of such rewards.
    """
    clip_range: PositiveFloat = 0.2
    """Clipping ε: no gradient once the ratio of the probabilities is out of 1 ± ε to the better."""
    gae_lambda: Fraction = 0.95
    """Decay λ of generalized advantage estimation."""
    normalize_advantages: bool = True
    """Advantages of each update with a mean of 0 and a standard deviation of 1."""
    baseline_cost: NonNegative = 1.0
    """Value function coefficient, of half the squared error."""
