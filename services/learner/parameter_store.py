"""The parameters that inference uses."""

from __future__ import annotations

from seedbed.types import Params


class ParameterStore:
    """The newest published parameters. Training publishes, inference reads between two batches."""

    def __init__(self) -> None:
        self._newest: tuple[Params, int] | None = None

    def publish(self, params: Params, version: int) -> None:
        """Replace the newest parameters as a whole. `params` must never change afterwards."""
        self._newest = (params, version)

    def newest(self) -> tuple[Params, int]:
        """Return the parameters and their version (the count of updates that made them)."""
        assert self._newest is not None
        return self._newest
