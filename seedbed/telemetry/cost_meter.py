"""The learner's client of the release's cost meter."""

import logging
import threading
from typing import NamedTuple

from seedbed.numbers import check_number
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.http import get_json
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Role, Tokens

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 10.0
FIRST_INTERVAL_S = 2.0  # before the first answer
TIMEOUT_S = 5.0


class Reading(NamedTuple):
    """One answer of the meter.

    Attributes:
        dollars: US dollars of the whole run.
        dollars_per_hour: Its present rate.
        bill: Name of the meter's bill, which a release has until it is uninstalled.
    """

    dollars: float
    dollars_per_hour: float
    bill: str = ""


class CostMeterClient:
    """Polls `cost.meter` until the process ends; a meter that does not answer is no failure.

    Attributes:
        reading: The newest answer; None before the first.
    """

    def __init__(self, url: str, tokens: Tokens | None = None) -> None:
        """Poll once, before anything is counted at other prices, and start the thread.

        Args:
            url: `cost.meter`.
            tokens: Tokens of the learner; None: none is sent.
        """
        self._url, self._tokens = url, tokens
        self._silent = False
        self.reading: Reading | None = None
        self._poll()
        threading.Thread(target=self._run, name="cost-meter", daemon=True).start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(POLL_INTERVAL_S if self.reading else FIRST_INTERVAL_S):
            self._poll()

    def _poll(self) -> None:
        try:
            status = get_json(self._url, TIMEOUT_S, self._tokens, Role.LEARNER)
            bill = printable(str(status.get("bill", "")))
            reading = Reading(float(status["dollars"]), float(status["dollars_per_hour"]), bill)
            for name in ("dollars", "dollars_per_hour"):
                check_number(name, getattr(reading, name))
            self.reading = reading
        except (OSError, ValueError, KeyError, TypeError, SeedbedError) as error:
            if not self._silent:
                log.warning(
                    "no answer from the cost meter at %s (%s: %s): dollars are counted at the last "
                    "known price until it answers",
                    self._url,
                    type(error).__name__,
                    printable(str(error)),
                )
            self._silent = True
        else:
            if self._silent:
                log.info("the cost meter at %s answers again", self._url)
            self._silent = False
