"""Failures of environments: their causes, their counts, and how many are too many."""

import time
from collections import Counter, deque
from collections.abc import Callable

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import Terminated, is_interrupt
from seedbed.runtime.text import counted

FAILURE_WINDOW_S = 600.0
# Causes for which an environment is made anew; the labels of the metric.
STEP_RAISED = "step_raised"
RESET_RAISED = "reset_raised"
MAKE_RAISED = "make_raised"
NOT_FINITE = "not_finite"
WRONG_SHAPE = "wrong_shape"
WORKER_DIED = "worker_died"
HUNG = "hung"
REFUSED = "refused"
CAUSES = (
    *(STEP_RAISED, RESET_RAISED, MAKE_RAISED, NOT_FINITE, WRONG_SHAPE, WORKER_DIED, HUNG),
    REFUSED,
)


class EnvironmentFault(Exception):
    """Error of an environment that broke its contract; handled as an exception of its own."""

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause


ENDED = "it ended its process"


def raise_ours(error: BaseException) -> None:
    """Raise an exception again that is not of a user's code, which may raise any other.

    Args:
        error: the exception.
    """
    if is_interrupt(error) or isinstance(error, SeedbedError | Terminated):
        raise error


def in_words(error: BaseException) -> str:
    """Describe an exception of a user's code.

    Args:
        error: the exception.
    """
    if isinstance(error, SystemExit):
        return f"{ENDED} (SystemExit: {error.code})"
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # its own `__str__`
        text = f"{type(error).__name__} without words"
    if "main thread" in text:
        text += (
            "; an actor steps environments in threads of their own: actor.workers=1 steps them in "
            "the main thread of another process"
        )
    if "OpenGL" in text:
        text += "; MUJOCO_GL=egl, or osmesa, draws without a screen"
    if type(error).__module__.partition(".")[0] == "pygame":
        text += (
            "; the environments of a process share pygame, and one of them may have ended it: as "
            "many actor.workers as actor.envs_per_group give each a process of its own"
        )
    return text


class Failures:
    """Failures of the environments of a group.

    Args:
        name: the `environment.id`.
        most: failures within ten minutes that are too many.
        clock: seconds, for tests.

    Attributes:
        counts: failures by cause.
        most: as above.
    """

    def __init__(self, name: str, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._failed_at: deque[float] = deque()
        self.most = most
        self.counts = Counter[str]()

    def add(self, cause: str, times: int = 1) -> int:
        """Count failures; return how many there were within the last ten minutes."""
        now = self._clock()
        self.counts[cause] += times
        self._failed_at.extend([now] * times)
        while now - self._failed_at[0] > FAILURE_WINDOW_S:
            self._failed_at.popleft()
        return len(self._failed_at)

    def check(self, last: str) -> None:
        """Raise once there were too many failures.

        Raises:
            SeedbedError: ENVIRONMENT: `most` failures within ten minutes.
        """
        recent = len(self._failed_at)
        if recent >= self.most:
            raise SeedbedError(
                ExitCode.ENVIRONMENT,
                f"{self._name}: {counted(recent, 'failure')} of environments within ten minutes "
                f"(limit {self.most}); the last one: {last}",
            )
