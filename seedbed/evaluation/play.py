"""Playing a trained policy apart from training: no wire, no unrolls, only environments and actions.

Import it after `backend.use`.

Which episodes count is settled before they are played: the first N to start, each played to its
end. Taking the first N to end instead would prefer short ones, which for most games are the bad
ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.inference_step import InferenceStep
from seedbed.agents.protocol import Agent
from seedbed.backends.protocol import Backend
from seedbed.config import Experiment
from seedbed.config.schema import Environment
from seedbed.envs import environment_seed, make_vector_env
from seedbed.envs.registry import ACTORS
from seedbed.evaluation import atari57
from seedbed.evaluation.atari_protocol import follows_table_9, protocol
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import FIRST, EnvironmentSpec, StepInputs, TimeStep, VectorEnv


class Episode(NamedTuple):
    """One episode, raw and undiscounted."""

    total: float  # its return
    length: int  # steps
    cut: bool  # it was ended by `max_steps`, not by the environment


@dataclass(frozen=True)
class Settings:
    """How to play.

    Attributes:
        max_steps: steps after which an episode is cut, so that one without an end ends.
    """

    episodes: int
    greedy: bool
    environments: int
    seed: int
    max_steps: int


@dataclass(frozen=True)
class Policy:
    """A trained agent on this process's backend."""

    backend: Backend
    agent: Agent
    spec: EnvironmentSpec
    frame_stack: int

    def player(self, environments: int, seed: int, greedy: bool) -> Player:
        """Somebody who plays `environments` games at once."""
        return Player(self, environments, seed, greedy)


class Player:
    """Chooses actions for one lock-step group. Keeps its frame stacks and recurrent state."""

    def __init__(self, policy: Policy, environments: int, seed: int, greedy: bool) -> None:
        self._inference = InferenceStep(
            policy.backend,
            policy.agent,
            policy.spec,
            policy.frame_stack,
            slots=environments,
            max_batch=environments,
            seed=seed,
            greedy=greedy,
        )
        self._params = [ops.convert_to_tensor(v) for v in policy.agent.model.trainable_variables]
        self._slots = np.arange(environments, dtype=np.int32)
        self._action = np.full(environments, -1, np.int32)

    def act(self, frame: TimeStep) -> NDArray[np.int32]:
        """Actions [E] for what the group has just seen. A first row forgets what was before."""
        flags = frame.first.astype(np.uint8) * np.uint8(FIRST)
        row = StepInputs(self._slots, frame.observation, flags, frame.reward, self._action)
        self._action = self._inference.run(self._params, [row]).action
        return self._action


class Tally:
    """Which rows play an episode that counts, and how it goes."""

    def __init__(self, environments: int, episodes: int, max_steps: int) -> None:
        self._wanted = episodes
        self._max_steps = max_steps
        self._started = 0
        self._number = np.full(environments, -1)  # of the episode in each row; -1 counts for nobody
        self._cut = np.zeros(environments, np.bool_)  # rows whose episode goes on uncounted
        self._totals = np.zeros(environments)
        self._lengths = np.zeros(environments, np.int64)
        self.ended: dict[int, Episode] = {}  # by number: the order in which they started
        self.restarted = 0  # episodes begun again because their environment raised

    @property
    def done(self) -> bool:
        """Whether all that were wanted have ended."""
        return len(self.ended) == self._wanted

    @property
    def stuck(self) -> bool:
        """Whether every row goes on with an episode that was cut: only new environments help."""
        return bool(self._cut.all())

    def take(self, frame: TimeStep) -> None:
        """One step of the group."""
        for i in np.flatnonzero(frame.first):
            self._begin(int(i))
        stepped = (self._number >= 0) & ~frame.first
        self._totals[stepped] += frame.reward[stepped]
        self._lengths[stepped] += 1
        over = stepped & (frame.terminated | frame.truncated)
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
            self.restarted += 1  # its environment raised: the same number once more
        elif self._started < self._wanted:
            self._number[i] = self._started
            self._started += 1


def evaluate(
    policy: Policy,
    experiment: Experiment,
    settings: Settings,
    progress: Callable[[Tally], None] = lambda tally: None,
) -> dict[str, Any]:
    """Play `settings.episodes` episodes of `experiment.environment`; returns plain numbers.

    Args:
        progress: called after every step of the group.

    Raises:
        SeedbedError: the environments cannot be made, fail, or are not those of the training.
    """
    started = time.monotonic()
    environments = min(settings.environments, settings.episodes)
    player = policy.player(environments, settings.seed, settings.greedy)
    tally = Tally(environments, settings.episodes, settings.max_steps)
    round_ = 0
    while not tally.done:
        group = make(policy, experiment, environments, settings.seed, round_)
        try:
            frame = group.reset()
            tally.take(frame)
            while not tally.done and not tally.stuck:
                frame = group.step(player.act(frame))
                tally.take(frame)
                progress(tally)
        finally:
            group.close()
        round_ += 1
    episodes = [tally.ended[number] for number in sorted(tally.ended)]
    return {
        **statistics(episodes),
        "human_normalised": human_normalised(experiment.environment, episodes),
        "restarted_episodes": tally.restarted,
        "policy": "greedy" if settings.greedy else "sample",
        "seconds": time.monotonic() - started,
        "protocol": {
            **protocol(experiment.environment),
            "environments": environments,
            "seed": settings.seed,
            "max_steps": settings.max_steps,
        },
        "returns": [episode.total for episode in episodes],
    }


def make(
    policy: Policy, experiment: Experiment, environments: int, seed: int, round_: int
) -> VectorEnv:
    """A group whose environments share no seed with those of the training, nor of other rounds.

    Raises:
        SeedbedError: it cannot be made here, or the policy was trained for other spaces.
    """
    environment, actor = experiment.environment, experiment.actor
    place = ACTORS - 1 - round_ % (ACTORS // 2)  # the actors of a training count from 0
    seeds = [environment_seed(seed, place, 0, i) for i in range(environments)]
    try:
        group = make_vector_env(
            environment, environments, actor.threads, seeds, actor.max_environment_failures
        )
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"{environment.id} cannot be played here ({error}): install the extra, "
            "`pip install seedbed[actor]`",
        ) from error
    if group.spec != policy.spec:
        group.close()
        raise SeedbedError(
            ExitCode.ENVIRONMENT, f"the policy was trained on {policy.spec}, not on {group.spec}"
        )
    return group


def human_normalised(environment: Environment, episodes: list[Episode]) -> float | None:
    """The mean between random play (0) and a human (1). None outside of the 57 games, or where
    Table 9 was not followed: the scores of the two are from its protocol.
    """
    game = atari57.find(environment.id)
    if game is None or not follows_table_9(environment) or any(e.cut for e in episodes):
        return None
    return atari57.human_normalised(game, float(np.mean([e.total for e in episodes])))


def statistics(episodes: list[Episode]) -> dict[str, Any]:
    """Mean, median and so on of the returns. `standard_error` is that of the mean, of n-1."""
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
