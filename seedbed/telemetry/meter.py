"""What the release's cost meter has counted: asked now and then, in a thread of its own."""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

ASK_EVERY_S = 10.0
TIMEOUT_S = 5.0


class Reading(NamedTuple):
    """One answer of the meter."""

    dollars: float  # of the whole release, since it began
    dollars_per_hour: float


class Meter:
    """Asks `cost.meter` until the process ends; a meter that does not answer is no failure.

    Attributes:
        reading: the newest answer; None before the first.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._silent = False
        self.reading: Reading | None = None
        self._ask()  # before anything is counted at other prices
        threading.Thread(target=self._run, name="meter", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(ASK_EVERY_S):
            self._ask()

    def _ask(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=TIMEOUT_S) as answer:
                said: dict[str, Any] = json.load(answer)
            self.reading = Reading(float(said["dollars"]), float(said["dollars_per_hour"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not self._silent:
                log.warning(
                    "no answer from the cost meter at %s (%s: %s): dollars are counted at the last "
                    "known price until it answers",
                    self._url, type(error).__name__, error,
                )  # fmt: skip
            self._silent = True
        else:
            if self._silent:
                log.info("the cost meter at %s answers again", self._url)
            self._silent = False
