"""Options of R2D2: the section `r2d2` of an experiment."""

from typing import Annotated

from pydantic import Field

from seedbed.agents.options import QLearningOptions


class R2d2Options(QLearningOptions):
    """Hyperparameters of R2D2 (Kapturowski et al. 2019), Table 8 of the SEED paper."""

    burn_in: Annotated[int, Field(ge=0)] = 40
    """Steps before the `learner.unroll_length` that a sequence trains on, which only bring the
    recurrent state up to date.
    """
