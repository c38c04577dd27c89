"""A user's own numbers in Prometheus, TensorBoard and progress.csv."""

import importlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from seedbed.runtime.exit_codes import ConfigError

# Each is a time series of Prometheus and a column of progress.csv.
MAX_NAMES = 200
_SLOW_S = 1.0

log = logging.getLogger(__name__)


class UserScalars:
    """Calls `module:function`, which returns a dict of floats, with the run's numbers.

    Attributes:
        values: Newest value of each name.
    """

    def __init__(self, path: str) -> None:
        """Import the function; without a path there are no values.

        Raises:
            SeedbedError: CONFIG, there is no such function.
        """
        self.values: dict[str, float] = {}
        self._path = path
        self._function = _load(path) if path else None
        self._warned = False

    def update(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """Call the function.

        A failure is logged once, training goes on, and the result is empty.
        """
        if self._function is None:
            return {}
        began = time.monotonic()
        try:
            fresh = {
                str(name): float(value) for name, value in self._function(dict(numbers)).items()
            }
            names = self.values.keys() | fresh.keys()
            if len(names) > MAX_NAMES:
                raise ValueError(
                    f"{len(names)} different names; at most {MAX_NAMES} are kept: names must not "
                    "hold numbers that change"
                )
        except Exception:
            if not self._warned:
                log.exception("logging.scalars %s failed; shown this once", self._path)
            self._warned = True
            return {}
        if time.monotonic() - began > _SLOW_S and not self._warned:
            log.warning(
                "logging.scalars %s took %.1f s: it holds up the run's own logging",
                self._path,
                time.monotonic() - began,
            )
            self._warned = True
        self.values.update(fresh)
        return fresh


def _load(path: str) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise ConfigError(f"logging.scalars: {path!r} must have the form module:function")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"logging.scalars: cannot load {path!r}: {error}") from error
    if not callable(function):
        raise ConfigError(f"logging.scalars: {path!r} is not a function")
    loaded: Callable[[dict[str, Any]], Mapping[str, Any]] = function
    return loaded
