"""Gymnasium environments, stepped one after the other in the caller's thread."""

import logging
import os
import tempfile
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
    RESET_RAISED,
    STEP_RAISED,
    EnvironmentFault,
    Failures,
    in_words,
    raise_ours,
)
from seedbed.envs.judge import (
    judge_fps,
    judge_lives,
    judge_picture,
    judge_render_modes,
    judge_reset,
    judge_step,
)
from seedbed.envs.sequential import SequentialVectorEnv
from seedbed.envs.watchdog import DEFAULT_S
from seedbed.runtime.calls import CLOSE, CONSTRUCTION, RENDER, RESET, CallRecord
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.streams import restore
from seedbed.spec import TimeStep, mark_first

log = logging.getLogger(__name__)


def draw_without_screen() -> None:
    """Let SDL, by which CartPole and others draw, need no screen and no folder of a session."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())


class GymnasiumVectorEnv(SequentialVectorEnv):
    """E Gymnasium environments.

    An environment that raises, or returns a reward or observation that is not finite, or an
    observation of another shape or kind than its space, is closed and made anew. Its episode is
    cut, and its step is the first of a new episode.

    Args:
        environment: the experiment's section.
        seeds: [E], one for each environment.
        max_failures: failures within ten minutes after which `reset` and `step` raise.
        timeout_s: as of `SequentialVectorEnv`.
        record: as of `SequentialVectorEnv`.
        first: as of `SequentialVectorEnv`.
        needs_lives: the agent's life_loss_ends reads `info["lives"]`, which must be a number.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        environment: Environment,
        seeds: Sequence[int],
        *,
        max_failures: int = 10,
        timeout_s: float | None = DEFAULT_S,
        record: CallRecord | None = None,
        first: int = 0,
        needs_lives: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(environment.id, seeds, timeout_s, record, first)
        self._environment = environment
        self._failures = Failures(environment.id, max_failures, clock)
        self.failures = self._failures.counts
        self._needs_lives = needs_lives
        self._envs: list[Env] = []
        try:
            with self._record:
                for i in range(self.num_envs):
                    self._envs.append(self._make(i))
            self.spec, self._observation, self._action = read_spaces(environment, self._envs[0])
            self._check_alike()
        except BaseException:
            self.close()
            raise
        self._lives: list[int | None] = [None] * self.num_envs

    def rgb(self, i: int) -> NDArray[np.uint8]:
        """Return the present picture of an environment, [H, W, 3] uint8.

        Raises:
            SeedbedError: the environment was not made with `render_mode="rgb_array"`, or does not
                support it.
        """
        try:
            with self._record as record:
                record.begin(RENDER, i)
                return judge_picture(self._envs[i].render())
        except BaseException as error:
            raise_ours(error)
            text = str(error) if isinstance(error, EnvironmentFault) else in_words(error)
            raise SeedbedError(
                ExitCode.ENVIRONMENT, f"{self.spec.name} cannot be drawn: {text}"
            ) from error

    @property
    def seen(self) -> list[str]:
        """What networks see of pictures, in words."""
        return self._observation.notes[0]

    def sees(self, observations: NDArray[Any]) -> list[tuple[str, float, float]]:
        """Return what `ObservationReader.sees` does of observations [steps, environments, ...]."""
        return self._observation.sees(observations)

    @property
    def warnings(self) -> list[str]:
        """What is taken as it is and is hardly meant, in words."""
        return [*self._observation.notes[1], *self._action.warnings]

    @property
    def draws(self) -> bool:
        """Whether the metadata names pictures, render_mode="rgb_array"."""
        return "rgb_array" in judge_render_modes(self._envs[0].metadata)

    @property
    def frames_per_second(self) -> float:
        """Pictures in a second of a video, from the metadata of the environment; otherwise 30."""
        return judge_fps(self._envs[0].metadata)

    @override
    def close(self) -> None:
        for i, env in enumerate(self._envs):
            self._close_one(i, env)
        self._envs = []
        super().close()

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
        except BaseException as error:
            raise_ours(error)
            self._begin(time_step, i, self._replace(i, STEP_RAISED, error))

    @override
    def _begin(self, time_step: TimeStep, i: int, seed: int | None) -> None:
        while True:
            try:
                observation, info = judge_reset(self._envs[i].reset(seed=seed))
                restore()
                time_step.observation[i] = self._observation.read(observation, info)
                self._lives[i] = judge_lives(info, self._needs_lives)
                # A step that failed may have written some of the rest.
                return mark_first(time_step, i)
            except BaseException as error:
                raise_ours(error)
                seed = self._replace(i, RESET_RAISED, error)

    def _replace(self, i: int, cause: str, error: BaseException) -> int:
        """Make environment `i` anew, unless there were too many failures; return its seed."""
        self._close_one(i, self._envs[i])
        while True:
            self._count_failure(i, cause, error)
            try:
                self._envs[i] = self._make(i)
                break
            except SeedbedError as again:
                cause, error = MAKE_RAISED, again
        self._record.begin(RESET, self._first + i)
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

    def _make(self, i: int) -> Env:
        self._record.begin(CONSTRUCTION, self._first + i)
        try:
            return make_environment(self._environment)
        finally:
            restore()

    def _check_alike(self) -> None:
        """Raise where an environment of the group has other spaces than the first one.

        Raises:
            SeedbedError: ENVIRONMENT, with both.
        """
        spaces = [(env.observation_space, env.action_space) for env in self._envs]
        for i, env in enumerate(self._envs):
            if spaces[i] == spaces[0]:
                continue
            spec, _, _ = read_spaces(self._environment, env)
            if spec != self.spec:
                raise SeedbedError(
                    ExitCode.ENVIRONMENT,
                    f"environment {self._first + i} is {spec}, and environment {self._first} "
                    f"{self.spec}: all environments of a group must have the same spaces",
                )

    def _close_one(self, i: int, env: Env) -> None:
        self._record.begin(CLOSE, self._first + i)
        try:
            env.close()
        except BaseException as error:
            raise_ours(error)
            # The environment is not used any more, and the others must continue.
            log.warning(
                "closing environment %d of %s failed",
                self._first + i,
                self._environment.id,
                exc_info=True,
            )
