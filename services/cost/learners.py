"""The learners' answers, as far as they can be believed."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.error import HTTPError

from seedbed.numbers import check_number
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.http import get_json
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Role, Tokens

if TYPE_CHECKING:
    from seedbed.telemetry.status import RunStatus

log = logging.getLogger(__name__)

# Longest wait for each part of an answer, and for all answers.
TIMEOUT_S, DEADLINE_S = 3.0, 4.0


class Learners:
    """The learners of a release.

    Attributes:
        asks: Each returns a learner's answer, and None while the learner does not answer.
    """

    def __init__(self, asks: "Sequence[Callable[[], Any]]", run: str) -> None:
        """Ask nothing yet.

        Args:
            asks: Each returns a learner's answer (the object of its /status), and None while the
                learner does not answer.
            run: Name of the run: answers of learners of another run count as none.
        """
        self.asks, self._run = asks, run
        self._asking: dict[int, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(len(asks), thread_name_prefix="ask")

    def poll(self) -> "list[RunStatus | None]":
        """Return the learners' statuses, None for a learner that does not answer with one."""
        for rank, ask in enumerate(self.asks):
            if self._asking.get(rank) is None:
                self._asking[rank] = self._pool.submit(_answer, ask)
        done, _ = wait(self._asking.values(), DEADLINE_S)
        # A question that is still open is no answer, and is not asked a second time.
        answers = [self._asking.pop(rank).result() if self._asking[rank] in done else None
                   for rank in range(len(self.asks))]  # fmt: skip
        return [answer if self._is_status(answer) else None for answer in answers]

    def _is_status(self, answer: Any) -> "TypeGuard[RunStatus]":
        """Return whether an answer has what the meter reads, in the ranges that a learner gives."""
        try:
            for name in ("env_frames", "dollars"):
                check_number(name, answer["counters"][name])
            check_number("resumed_dollars", answer["resumed_dollars"])
            check_number("earlier_dollars", answer.get("earlier_dollars", 0.0))
            check_number("learners.env_frames", (answer.get("learners") or {}).get("env_frames", 0))
            path = PurePosixPath(answer["run_dir"] or self._run)
            return (
                isinstance(answer["state"], str)
                and isinstance(answer.get("over") or "", str)
                and (not self._run or self._run in path.parts)
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return False


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:  # one learner's answer must not cost the others'
        log.warning(
            "a learner cannot be asked: %s: %s", type(error).__name__, printable(str(error))
        )
        return None


def read_learner(url: str, tokens: Tokens | None = None) -> Any:
    """Read a learner's /status.

    Args:
        url: The address of /status.
        tokens: Tokens of the meter, an observer; None: none is sent.

    Returns:
        The answer; None while the learner does not answer, or not with JSON.
    """
    try:
        return get_json(url, TIMEOUT_S, tokens, Role.OBSERVER)
    except (HTTPError, SeedbedError) as error:
        # Most likely a credential, which no waiting mends.
        log.warning("no status from %s: %s", url, printable(str(error)))
        return None
    except (OSError, ValueError):
        return None
