"""The sections of the agents that ship: their hyperparameters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from seedbed.config.section import NonNegative, Positive, Section

AGENTS = ("a2c", "dqn", "r2d2", "vtrace")  # by name; the registry is in services/learner
SYNCHRONOUS = ("a2c",)  # those of them that say so in their class


class Vtrace(Section):
    """Hyperparameters of V-trace (Espeholt et al. 2018), Tables 6 and 7 of the SEED paper."""

    discount: Annotated[float, Field(ge=0, le=1)] = Field(0.99, description="γ.")
    trace_lambda: Annotated[float, Field(ge=0, le=1)] = Field(1.0, description="λ.")
    rho_bar: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Truncation of the importance weight of the temporal difference."
    )
    c_bar: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Truncation of the trace's importance weight."
    )
    rho_bar_policy: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Truncation of the policy gradient's importance weight."
    )
    entropy_cost: NonNegative = Field(0.01, description="Entropy coefficient.")
    baseline_cost: NonNegative = Field(0.5, description="Value function coefficient.")
    reward_clip: NonNegative = Field(
        0.0, description="Rewards are clipped to ± this in the loss; 0 does not clip."
    )
    reward_scale: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Rewards are multiplied by this in the loss, before clipping."
    )
    life_loss_ends: bool = Field(
        False, description="A lost life zeroes the discount in the loss; it resets nothing."
    )

    @model_validator(mode="after")
    def _rho_over_c(self) -> Vtrace:
        if self.rho_bar < self.c_bar:
            raise ValueError(
                f"rho_bar {self.rho_bar} is below c_bar {self.c_bar}: V-trace asks for "
                "rho_bar >= c_bar (Espeholt et al. 2018, section 4.1)"
            )
        return self


class A2c(Section):
    """Hyperparameters of A2C (Mnih et al. 2016), as in Stooke and Abbeel 2018. Each update is made
    of one unroll of each of `learner.batch_size` environments, all acted by the newest parameters.
    """

    discount: Annotated[float, Field(ge=0, le=1)] = Field(0.99, description="γ.")
    entropy_cost: NonNegative = Field(0.01, description="Entropy coefficient.")
    baseline_cost: NonNegative = Field(
        0.5, description="Value function coefficient, of half the squared error."
    )
    reward_clip: NonNegative = Field(
        0.0, description="Rewards are clipped to ± this in the loss; 0 does not clip."
    )
    reward_scale: Annotated[float, Field(gt=0)] = Field(
        1.0, description="Rewards are multiplied by this in the loss, before clipping."
    )
    life_loss_ends: bool = Field(
        False, description="A lost life zeroes the discount in the loss; it resets nothing."
    )


class QLearning(Section):
    """What R2D2 and DQN have in common."""

    discount: Annotated[float, Field(ge=0, le=1)] = Field(0.997, description="γ.")
    n_steps: Positive = Field(5, description="Rewards of a target, before it bootstraps.")
    double_q: bool = Field(
        True,
        description="The trained network chooses the action, the target network values it.",
    )
    value_rescaling_epsilon: Annotated[float, Field(ge=0, le=1)] = Field(
        1e-3, description="ε of h(x) = sign(x) (√(|x| + 1) - 1) + εx; 0 does not rescale."
    )
    target_update_period: Positive = Field(
        2_500, description="Updates after which the target network takes the parameters over."
    )
    max_priority_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        0.9, description="η: a priority is η max|δ| + (1 - η) mean|δ| of a sequence's errors δ."
    )
    dueling_units: Positive = Field(
        512,
        json_schema_extra={"resume": "the parameters' shapes follow from it"},
        description="Units of each of the two hidden layers.",
    )
    epsilon_levels: Positive = Field(
        256,
        description="N: the environment in slot s explores with ε = 0.4^(1 + 7i / (N - 1)), "
        "i = s mod N. With 1 all have 0.4.",
    )
    evaluation_epsilon: Annotated[float, Field(ge=0, le=1)] = Field(
        1e-3, description="ε of evaluations."
    )
    reward_clip: NonNegative = Field(
        0.0, description="Rewards are clipped to ± this in the loss; 0 does not clip."
    )
    life_loss_ends: bool = Field(
        False, description="A lost life zeroes the discount in the loss; it resets nothing."
    )


class R2d2(QLearning):
    """Hyperparameters of R2D2 (Kapturowski et al. 2019), Table 8 of the SEED paper."""

    burn_in: Annotated[int, Field(ge=0)] = Field(
        40,
        description="Steps before the `learner.unroll_length` that a sequence trains on, which "
        "only bring its recurrent state up to date.",
    )


class Dqn(QLearning):
    """Hyperparameters of the dueling DQN of "Deep In-GPU Experience Replay" (2017), section 4.2.
    It trains on single transitions: `learner.unroll_length` is 1.
    """

    discount: Annotated[float, Field(ge=0, le=1)] = Field(0.99, description="γ.")
    n_steps: Positive = Field(1, description="Rewards of a target, before it bootstraps.")
    double_q: bool = Field(
        False,
        description="The trained network chooses the action, the target network values it.",
    )
    value_rescaling_epsilon: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="ε of h(x) = sign(x) (√(|x| + 1) - 1) + εx; 0 does not rescale."
    )
    target_update_period: Positive = Field(
        10_000, description="Updates after which the target network takes the parameters over."
    )
