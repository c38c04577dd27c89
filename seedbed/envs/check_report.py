"""Results of `seedbed check env`."""

from dataclasses import dataclass, field

from seedbed.envs.advice import Advice
from seedbed.spec import EnvironmentSpec


@dataclass(frozen=True)
class Check:
    """Result of one check. `result` is `ok`, `warning` or `failed`."""

    name: str
    result: str
    detail: str


@dataclass
class Report:
    """Results of `seedbed check env`.

    Attributes:
        environment: the `environment.id`.
        speed: measured speeds and sizes, with units in their names.
        is_whole: what an actor does has been tried.
    """

    environment: str
    spec: EnvironmentSpec | None = None
    checks: list[Check] = field(default_factory=list)
    speed: dict[str, float] = field(default_factory=dict)
    advice: Advice | None = None
    is_whole: bool = False

    @property
    def ok(self) -> bool:
        """Return whether no check failed. Warnings are allowed."""
        return not any(check.result == "failed" for check in self.checks)

    def add(self, name: str, detail: str, result: str = "ok") -> None:
        """Add the result of a check."""
        self.checks.append(Check(name, result, detail))

    def warn(self, name: str, detail: str) -> None:
        """Add a warning."""
        self.add(name, detail, "warning")
