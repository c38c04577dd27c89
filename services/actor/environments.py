"""Environments of a group, over all its streams."""

import time
from collections import Counter, deque
from collections.abc import Callable

from seedbed.envs.failures import FAILURE_WINDOW_S, REFUSED
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.spec import TimeStep, VectorEnv


class Environments:
    """Environments of a group. Only in the thread of the group.

    Args:
        make: makes the vector environment.
        name: name of the group for logs.
        metrics: counts failures.
        max_failures: refusals of the environments' numbers within ten minutes after which `replace`
            raises.

    Attributes:
        env: the environments, from `make` to `close`.
    """

    env: VectorEnv

    def __init__(
        self, make: Callable[[], VectorEnv], name: str, metrics: ActorMetrics, max_failures: int
    ) -> None:
        self._make, self._name, self._metrics = make, name, metrics
        self._is_made = False
        self._begun: TimeStep | None = None  # first step of the first stream
        self._reset_before: VectorEnv | None = None  # environments that have begun once
        self._failures = Counter[str]()  # that the metrics have counted
        # When the learner refused the environments' numbers.
        self._refusals: deque[float] = deque(maxlen=max_failures)

    def make(self) -> VectorEnv:
        """Make the environments, and return them."""
        self.env, self._is_made = self._make(), True
        self._failures.clear()
        return self.env

    def begin(self, env_frames: int) -> None:
        """Begin the episodes of the first stream before there is one.

        That takes as long as a learner on the same cores takes to load its backend.

        Args:
            env_frames: frames of the run so far.
        """
        self.env.incarnation = env_frames
        self._begun = self._reset()

    def first_step(self) -> TimeStep:
        """Return the first step of a stream, of episodes that no earlier stream has played."""
        begun, self._begun = self._begun, None
        return begun or self._reset()

    def _reset(self) -> TimeStep:
        if self.env is self._reset_before:
            return self.env.reset_again()
        self._reset_before = self.env
        return self.env.reset()

    def count_failures(self) -> None:
        """Count the environments' failures since the last call."""
        failures = self.env.failures
        if failures and failures != self._failures:
            self._metrics.on_failures(Counter(failures) - self._failures)
            self._failures = Counter(failures)

    def replace(self, cause: str) -> None:
        """Make the environments anew, whose numbers the learner has refused.

        Args:
            cause: the refusal.

        Raises:
            SeedbedError: ENVIRONMENT: too many refusals.
        """
        self._metrics.on_failures(Counter({REFUSED: 1}))
        self._refusals.append(time.monotonic())
        most, recent = self._refusals.maxlen, self._refusals[-1] - self._refusals[0]
        if len(self._refusals) == most and recent < FAILURE_WINDOW_S:
            raise SeedbedError(
                ExitCode.ENVIRONMENT,
                f"{self._name}: {most} failures of environments within ten minutes "
                f"(actor.max_environment_failures is {most}): {cause}",
            )
        self.close()
        self._begun = self._reset_before = None
        self.make()

    def close(self) -> None:
        """Close the environments, if there are any."""
        if self._is_made:
            self._is_made = False
            self.env.close()
