"""A user's own numbers, beside ours in Prometheus, TensorBoard and progress.csv."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

MAX_NAMES = 200  # each is a time series of Prometheus and a column of progress.csv
_SLOW_S = 1.0

log = logging.getLogger(__name__)


class UserScalars:
    """Calls `module:function` with the run's numbers; it returns a dict of floats."""

    def __init__(self, path: str) -> None:
        """Import the function.

        Raises:
            SeedbedError: CONFIG, when there is no such function.
        """
        self.values: dict[str, float] = {}
        self._path = path
        self._function = _load(path)
        self._complained = False

    def update(self, numbers: Mapping[str, Any]) -> dict[str, float]:
        """Call the function. When it fails, the traceback is logged once, training goes on and
        the result is empty."""
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
            if not self._complained:
                log.exception("logging.scalars %s failed; shown this once", self._path)
            self._complained = True
            return {}
        if time.monotonic() - began > _SLOW_S and not self._complained:
            log.warning(
                "logging.scalars %s took %.1f s: it holds up the run's own logging",
                self._path,
                time.monotonic() - began,
            )
            self._complained = True
        self.values.update(fresh)
        return fresh


def _load(path: str) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise SeedbedError(
            ExitCode.CONFIG, f"logging.scalars: {path!r} must have the form module:function"
        )
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SeedbedError(
            ExitCode.CONFIG, f"logging.scalars: cannot load {path!r}: {error}"
        ) from error
    if not callable(function):
        raise SeedbedError(ExitCode.CONFIG, f"logging.scalars: {path!r} is not a function")
    loaded: Callable[[dict[str, Any]], Mapping[str, Any]] = function
    return loaded
