"""Gymnasium environments, stepped one after the other in the caller's thread."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Environment
from seedbed.envs.factory import Env, make_environment, read_spaces
from seedbed.envs.failures import (
    MAKE_RAISED,
    PASSING,
    RESET_RAISED,
    STEP_RAISED,
    EnvironmentFault,
    Failures,
    in_words,
)
from seedbed.envs.judge import judge_fps, judge_lives, judge_picture, judge_reset, judge_step
from seedbed.envs.sequential import SequentialVectorEnv
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import TimeStep, mark_first

# A reset may load a level, or start a simulator.
STEP_DEADLINE_S = 600.0
log = logging.getLogger(__name__)


class GymnasiumVectorEnv(SequentialVectorEnv):
    """E Gymnasium environments.

    An environment that raises, or returns a reward or observation that is not finite, or an
    observation of another shape or kind than its space, is closed and made anew. Its episode is
    cut, and its step is the first of a new episode.

    Args:
        environment: the experiment's section.
        seeds: [E], one for each environment.
        max_failures: failures within ten minutes after which `reset` and `step` raise.
        deadline_s: longest time of a call before the process ends; None: ten minutes.
        first: number of the first environment, in logs.
        needs_lives: the agent's life_loss_ends reads `info["lives"]`, which must be a number.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        environment: Environment,
        seeds: Sequence[int],
        *,
        max_failures: int = 10,
        deadline_s: float | None = None,
        first: int = 0,
        needs_lives: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            environment.id, seeds, STEP_DEADLINE_S if deadline_s is None else deadline_s
        )
        self._environment = environment
        self._failures = Failures(environment.id, max_failures, clock)
        self.failures = self._failures.counts
        self._first, self._needs_lives = first, needs_lives
        self._envs: list[Env] = []
        try:
            with self._watchdog:
                self._envs.extend(make_environment(environment) for _ in seeds)
                self.spec, self._observation, self._action = read_spaces(environment, self._envs[0])
        except BaseException:
            self.close()
            raise
        self._lives: list[int | None] = [None] * self.num_envs

    def rgb(self, i: int) -> NDArray[np.uint8]:
        """Return the present picture of an environment, [H, W, 3] uint8.

        Args:
            i: the environment.

        Raises:
            SeedbedError: the environment was not made with `render_mode="rgb_array"`, or does not
                support it.
        """
        try:
            with self._watchdog:
                return judge_picture(self._envs[i].render())
        except PASSING:
            raise
        except BaseException as error:
            text = str(error) if isinstance(error, EnvironmentFault) else in_words(error)
            raise SeedbedError(
                ExitCode.ENVIRONMENT, f"{self.spec.name} cannot be drawn: {text}"
            ) from error

    @property
    def frames_per_second(self) -> float:
        """Pictures in a second of a video, from the metadata of the environment; otherwise 30."""
        return judge_fps(self._envs[0].metadata)

    @override
    def close(self) -> None:
        self._watchdog.close()
        for i, env in enumerate(self._envs):
            self._close_one(i, env)
        self._envs = []

    @override
    def _advance(self, time_step: TimeStep, i: int, action: Any) -> None:
        try:
            values: Any = self._envs[i].step(self._action.write(action))
            observation, reward, terminated, truncated, info = judge_step(values)
            time_step.observation[i] = self._observation.read(observation, info)
            time_step.reward[i] = reward
            time_step.terminated[i] = terminated
            time_step.truncated[i] = truncated and not terminated
            lives, before = judge_lives(info, self._needs_lives), self._lives[i]
            time_step.life_lost[i] = lives is not None and before is not None and lives < before
            self._lives[i] = lives
        except PASSING:
            raise
        except BaseException as error:
            self._begin(time_step, i, self._replace(i, STEP_RAISED, error))

    @override
    def _begin(self, time_step: TimeStep, i: int, seed: int | None) -> None:
        while True:
            try:
                observation, info = judge_reset(self._envs[i].reset(seed=seed))
                time_step.observation[i] = self._observation.read(observation, info)
                self._lives[i] = judge_lives(info, self._needs_lives)
                # A step that failed may have written some of the rest.
                return mark_first(time_step, i)
            except PASSING:
                raise
            except BaseException as error:
                seed = self._replace(i, RESET_RAISED, error)

    def _replace(self, i: int, cause: str, error: BaseException) -> int:
        """Make environment `i` anew, unless there were too many failures; return its seed."""
        self._close_one(i, self._envs[i])
        while True:
            self._count_failure(i, cause, error)
            try:
                self._envs[i] = make_environment(self._environment)
                break
            except SeedbedError as again:
                cause, error = MAKE_RAISED, again
        # A new seed, because the old one would lead to the same failure.
        entropy = np.random.SeedSequence((self._seeds[i], self._failures.counts.total()))
        return int(entropy.generate_state(1)[0] >> 1)

    def _count_failure(self, i: int, cause: str, error: BaseException) -> None:
        if isinstance(error, EnvironmentFault):
            cause = error.cause
        recent = self._failures.add(cause)
        most = self._failures.most
        failed = f"environment {self._first + i} of {self._environment.id} failed"
        kind = in_words(error)
        new, self.last_failure = kind != self.last_failure, kind  # the same traceback once
        text = "%s (%s, %d of at most %d within ten minutes)%s"
        log.error(
            text, failed, cause, recent, most, f": {kind}" if new else "",
            exc_info=error if new else None,
        )  # fmt: skip
        try:
            self._failures.check(kind)
        except SeedbedError as too_many:
            raise too_many from error

    def _close_one(self, i: int, env: Env) -> None:
        try:
            env.close()
        except PASSING:
            raise
        except BaseException:
            # The environment is not used any more, and the others must continue.
            log.warning(
                "closing environment %d of %s failed",
                self._first + i,
                self._environment.id,
                exc_info=True,
            )
