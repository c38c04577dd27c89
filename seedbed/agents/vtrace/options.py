"""Options of V-trace: the section `vtrace` of an experiment."""

from pydantic import model_validator

from seedbed.agents.options import ActorCriticOptions
from seedbed.settings import Fraction, PositiveFloat


class VtraceOptions(ActorCriticOptions):
    """Hyperparameters of V-trace (Espeholt et al. 2018), Tables 6 and 7 of the SEED paper."""

    trace_lambda: Fraction = 1.0
    """Trace decay λ."""
    rho_bar: PositiveFloat = 1.0
    """Truncation of the importance weight of the temporal difference."""
    c_bar: PositiveFloat = 1.0
    """Truncation of the importance weight of the trace."""
    rho_bar_policy: PositiveFloat = 1.0
    """Truncation of the importance weight of the policy gradient."""

    @model_validator(mode="after")
    def _check_truncations(self) -> "VtraceOptions":
        if self.rho_bar < self.c_bar:
            raise ValueError(
                f"rho_bar {self.rho_bar} is below c_bar {self.c_bar}: V-trace asks for "
                "rho_bar >= c_bar (Espeholt et al. 2018, section 4.1)"
            )
        return self
