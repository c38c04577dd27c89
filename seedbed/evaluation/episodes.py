"""Episodes of a trained policy apart from training: no wire and no unrolls.

Import this module after `backends.use`.

The episodes that count are chosen before they are played: the first N to start, each played to its
end. The first N to end would be the short ones, which in most games are the bad ones.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np

from seedbed.config import Experiment
from seedbed.config.environment import Environment
from seedbed.envs import environment_seed, make_vector_env
from seedbed.evaluation import atari57
from seedbed.evaluation.atari_protocol import follows_atari_protocol, protocol
from seedbed.evaluation.trained_policy import PolicyRunner, TrainedPolicy
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install
from seedbed.runtime.limits import share_of_machine
from seedbed.spec import ACTORS, TimeStep, VectorEnv

# Each has memory of its own, and the policy waits for the slowest of them.
_MOST_WORKERS = 4


class Episode(NamedTuple):
    """One episode, raw and undiscounted."""

    total: float  # its return
    length: int  # steps
    cut: bool  # `max_steps` ended the episode, not the environment


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings of an evaluation.

    Attributes:
        episodes: number of episodes that count.
        greedy: choose the best action instead of sampling.
        num_envs: environments that step in lock-step.
        seed: seed of environments and actions.
        max_steps: steps after which an episode is cut, so that an endless one ends.
    """

    episodes: int
    greedy: bool
    num_envs: int
    seed: int
    max_steps: int


class ReturnStatistics(TypedDict):
    """Statistics of the returns of some episodes."""

    episodes: int
    mean: float
    median: float
    standard_error: float | None  # of the mean; None for one episode
    min: float
    max: float
    mean_length: float  # steps
    cut_episodes: int


class EvaluationResult(ReturnStatistics):
    """Result of `evaluate`."""

    human_normalised: float | None  # 0 is random play, 1 is a human
    restarted_episodes: int
    policy: str  # "greedy" or "sample"
    seconds: float
    protocol: dict[str, Any]
    returns: list[float]  # in the order in which the episodes started


class EpisodeCollector:
    """Collects the first `episodes` episodes that start.

    Args:
        num_envs: environments of the vector environment, E.
        episodes: number of episodes that count.
        max_steps: steps after which an episode is cut.

    Attributes:
        ended: episodes by number, in the order in which they started.
        restarted: episodes that began again because their environment raised.
    """

    def __init__(self, num_envs: int, episodes: int, max_steps: int) -> None:
        self._wanted = episodes
        self._max_steps = max_steps
        self._started = 0
        # [E] number of the episode that counts, -1 where none does.
        self._number = np.full(num_envs, -1)
        # [E] True where an episode that was cut goes on.
        self._cut = np.zeros(num_envs, np.bool_)
        self._totals = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self.ended: dict[int, Episode] = {}
        self.restarted = 0

    @property
    def done(self) -> bool:
        """True when all episodes that count have ended."""
        return len(self.ended) == self._wanted

    @property
    def all_cut(self) -> bool:
        """True when every environment goes on with a cut episode: only new environments help."""
        return bool(self._cut.all())

    def on_step(self, step: TimeStep) -> None:
        """Count one step of the vector environment."""
        for i in np.flatnonzero(step.first):
            self._begin(int(i))
        stepped = (self._number >= 0) & ~step.first
        self._totals[stepped] += step.reward[stepped]
        self._lengths[stepped] += 1
        over = stepped & (step.terminated | step.truncated)
        late = stepped & ~over & (self._lengths >= self._max_steps)
        for i in np.flatnonzero(over | late):
            self.ended[int(self._number[i])] = Episode(
                float(self._totals[i]), int(self._lengths[i]), bool(late[i])
            )
            self._number[i] = -1
        self._cut |= late

    def _begin(self, i: int) -> None:
        self._cut[i] = False
        self._totals[i] = self._lengths[i] = 0
        if self._number[i] >= 0:
            self.restarted += 1  # the environment raised: the same episode once more
        elif self._started < self._wanted:
            self._number[i] = self._started
            self._started += 1


def evaluate(
    policy: TrainedPolicy,
    experiment: Experiment,
    settings: EvaluationSettings,
    on_step: Callable[[EpisodeCollector], None] = lambda collector: None,
    closing: ExitStack | None = None,
) -> EvaluationResult:
    """Play `settings.episodes` episodes of `experiment.environment`.

    Args:
        policy: the policy that plays.
        experiment: names the environment, and the actor's settings for it.
        settings: how to evaluate.
        on_step: called after every step, for progress reports.
        closing: closes the environments, when the result is safe; None: they are closed here.

    Raises:
        SeedbedError: the environments cannot be made, fail, or are not those of the training.
    """
    started = time.monotonic()
    num_envs = min(settings.num_envs, settings.episodes)
    runner = PolicyRunner(policy, num_envs, settings.seed, settings.greedy)
    collector = EpisodeCollector(num_envs, settings.episodes, settings.max_steps)
    attempt = 0
    while not collector.done:
        env = make_evaluation_env(policy, experiment, num_envs, settings.seed, attempt)
        ends = closing or ExitStack()
        ends.callback(env.close)
        try:
            step = env.reset()
            collector.on_step(step)
            while not collector.done and not collector.all_cut:
                step = env.step(runner.act(step))
                collector.on_step(step)
                on_step(collector)
        finally:
            if closing is None or not collector.done:
                ends.close()
        attempt += 1
    episodes = [collector.ended[number] for number in sorted(collector.ended)]
    return {
        **return_statistics(episodes),
        "human_normalised": human_normalised(experiment.environment, episodes),
        "restarted_episodes": collector.restarted,
        "policy": "greedy" if settings.greedy else "sample",
        "seconds": time.monotonic() - started,
        "protocol": {
            **protocol(experiment.environment),
            "environments": num_envs,
            "seed": settings.seed,
            "max_steps": settings.max_steps,
        },
        "returns": [episode.total for episode in episodes],
    }


def make_evaluation_env(
    policy: TrainedPolicy, experiment: Experiment, num_envs: int, seed: int, attempt: int
) -> VectorEnv:
    """Make environments that share no seed with those of training, nor of other attempts.

    Args:
        policy: the policy, whose spec the environments must have.
        experiment: names the environment, and the actor's settings for it.
        num_envs: number of environments.
        seed: seed of the evaluation.
        attempt: number of the vector environment within the evaluation, from 0.

    Raises:
        SeedbedError: the environment cannot be made, or the policy was trained for other spaces.
    """
    environment, actor = experiment.environment, experiment.actor
    index = ACTORS - 1 - attempt % (ACTORS // 2)  # actors of the training count from 0
    seeds = [environment_seed(seed, index, 0, i) for i in range(num_envs)]
    try:
        env = make_vector_env(
            environment,
            num_envs,
            actor.threads,
            seeds,
            actor.max_environment_failures,
            actor.workers or _workers(environment, num_envs),
            actor.environment_timeout_s,
        )
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"{environment.id} cannot be played here ({error}): install the extra, "
            f"{how_to_install('actor')}",
        ) from error
    if env.spec != policy.spec:
        env.close()
        raise SeedbedError(
            ExitCode.ENVIRONMENT, f"the policy was trained on {policy.spec}, not on {env.spec}"
        )
    return env


def _workers(environment: Environment, num_envs: int) -> int:
    """Return the processes that play, where the experiment leaves it open; 0 is this one.

    An Atari evaluation is `exact`, which steps one game after the other. A single game, such as
    that of a video, is played here.
    """
    if environment.family != "atari":
        return 0
    workers = min(int(share_of_machine()[0]), num_envs, _MOST_WORKERS)
    return workers if workers > 1 else 0


def human_normalised(environment: Environment, episodes: list[Episode]) -> float | None:
    """Return the mean return on a scale from random play (0) to a human (1).

    None outside of the 57 games, where an episode was cut, and where the Atari protocol was not
    followed, because the scores of both come from that protocol.
    """
    score = atari57.find(environment.id)
    if score is None or not follows_atari_protocol(environment) or any(e.cut for e in episodes):
        return None
    return score.normalise(float(np.mean([e.total for e in episodes])))


def return_statistics(episodes: list[Episode]) -> ReturnStatistics:
    """Return statistics of the returns; `standard_error` divides by n - 1."""
    returns = np.array([episode.total for episode in episodes])
    error = float(returns.std(ddof=1) / np.sqrt(len(returns))) if len(returns) > 1 else None
    return {
        "episodes": len(episodes),
        "mean": float(returns.mean()),
        "median": float(np.median(returns)),
        "standard_error": error,
        "min": float(returns.min()),
        "max": float(returns.max()),
        "mean_length": float(np.mean([episode.length for episode in episodes])),
        "cut_episodes": sum(episode.cut for episode in episodes),
    }
