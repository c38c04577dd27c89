"""Measurements that can be cut off at any moment, and go on with what is missing.

Each case is in the file before the next one begins. The same command with the same file measures
the cases that the file lacks.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import atomic_write

log = logging.getLogger(__name__)


class Case(NamedTuple):
    """One measurement.

    Attributes:
        name: Of the case, within its part.
        measure: From the seconds that it may take to its figures, JSON.
        least_s: Seconds without which it is not begun.
    """

    name: str
    measure: Callable[[float], dict[str, Any]]
    least_s: float = 10.0


class Part(NamedTuple):
    """Cases that answer one question.

    Attributes:
        name: Of the part.
        share: Of the time, as a weight. What an earlier part leaves is shared by the later ones.
        cases: In their order.
    """

    name: str
    share: float
    cases: Sequence[Case]


class Session:
    """The file of a benchmark that may take several calls.

    Args:
        path: The JSON file. One that exists is gone on with.
        settings: What every call has in common, and is written into the file.
        fixed: Names of those that must not change from one call to the next.
        clock: Seconds, for tests.

    Attributes:
        results: The content of the file.

    Raises:
        SeedbedError: USAGE, the file cannot be read, or is of other settings.
    """

    def __init__(
        self,
        path: Path,
        settings: dict[str, Any],
        fixed: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._clock = path, clock
        before = _read(path) if path.exists() else {}
        for name in fixed:
            if name != "minutes" and before and before.get(name) != settings[name]:
                raise SeedbedError(
                    ExitCode.USAGE,
                    f"{path} has {name} {before.get(name)!r}, and this call {settings[name]!r}: "
                    "figures of two machines or settings do not go into one file; name another one",
                )
        self.results = {**before, **settings}
        for name, empty in (("spent_s", 0.0), ("missing", {}), ("parts", {})):
            self.results.setdefault(name, empty)

    def measure(self, parts: Sequence[Part]) -> None:
        """Measure what is missing, in the time that is left.

        Raises:
            SeedbedError: INTERNAL, a case failed; everything else is measured and written.
        """
        spent_before, started = self.results["spent_s"], self._clock()
        self.results["missing"] = {}
        failed: list[str] = []

        def write() -> None:
            self.results["spent_s"] = round(spent_before + self._clock() - started, 3)
            self.write()

        end = started + 60 * self.results["minutes"] - spent_before
        try:
            for number, part in enumerate(parts):
                shares = sum(later.share for later in parts[number:])
                deadline = self._clock() + (end - self._clock()) * part.share / shares
                self._measure_part(part, deadline, failed, write)
        finally:
            write()
        if failed:
            raise SeedbedError(
                ExitCode.INTERNAL,
                f"not measured: {', '.join(failed)}; see the log, and `missing` in {self._path}",
            )

    def _measure_part(
        self, part: Part, deadline: float, failed: list[str], write: Callable[[], None]
    ) -> None:
        done: dict[str, Any] = self.results["parts"].setdefault(part.name, {})
        order = [case.name for case in part.cases]
        todo = [case for case in part.cases if case.name not in done]
        for number, case in enumerate(todo):
            name, left = f"{part.name}/{case.name}", deadline - self._clock()
            if left < case.least_s:
                left_s = max(left, 0)
                reason = (
                    f"{left_s:.0f} s were left for it, and it takes at least {case.least_s:g} s"
                )
                self.results["missing"][name] = reason
                log.warning("%s is not measured: %s (--minutes)", name, reason)
                continue
            log.info("%s", name)
            write()  # the time so far
            try:
                done[case.name] = case.measure(left / (len(todo) - number))
                in_order = sorted(done.items(), key=lambda item: order.index(item[0]))
                done.clear()
                done.update(in_order)
            except Exception as error:  # minutes of measuring must not go with it
                log.exception("%s was not measured", name)
                self.results["missing"][name] = str(error)
                failed.append(name)
            write()

    def write(self) -> None:
        """Write the file, whole."""
        atomic_write(self._path, json.dumps(self.results, indent=1) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        results: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SeedbedError(ExitCode.USAGE, f"cannot read {path}: {error}") from error
    if results.get("kind", "accelerator") != "accelerator":
        raise SeedbedError(ExitCode.USAGE, f"{path} is of another benchmark: name another file")
    return results
