"""Options of DQN: the section `dqn` of an experiment."""

from seedbed.agents.options import QLearningOptions
from seedbed.settings import Fraction, Positive


class DqnOptions(QLearningOptions):
    """Hyperparameters of the dueling DQN of "Deep In-GPU Experience Replay" (2017), section 4.2.

    DQN trains on single transitions: `learner.unroll_length` is 1.
    """

    discount: Fraction = 0.99
    """Discount γ of a step."""
    n_steps: Positive = 1
    """Rewards of a target, before it bootstraps."""
    double_q: bool = False
    """The trained network chooses the action, the target network values it."""
    value_rescaling_epsilon: Fraction = 0.0
    """Constant ε of h(x) = sign(x) (√(|x| + 1) - 1) + εx; 0 does not rescale."""
    target_update_period: Positive = 10_000
    """Updates after which the target network is set to the parameters."""
