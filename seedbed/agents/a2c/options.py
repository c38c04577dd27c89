"""Options of A2C: the section `a2c` of an experiment."""

from typing import ClassVar

from seedbed.agents.options import ActorCriticOptions


class A2cOptions(ActorCriticOptions):
    """Hyperparameters of A2C (Mnih et al. 2016), as in Stooke and Abbeel 2018.

    Each update is made of one unroll of each of `learner.batch_size` environments, all acted by the
    newest parameters.
    """

    synchronous: ClassVar[bool] = True
