"""Vector environments by id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from seedbed.config.environment import Environment
from seedbed.envs.registry import environment_seed, make_vector_env
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import VectorEnv


def make_env(
    env_id: str,
    num_envs: int = 1,
    seed: int = 0,
    threads: int = 1,
    atari: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> VectorEnv:
    """Make a vector environment, whose environments step in lock-step.

    `env.reset()` and `env.step(actions)` return a `TimeStep` of arrays `[num_envs, ...]`. An
    environment whose episode has ended begins the next one in the step after, with `first` set.

    Args:
        env_id: `"atari:Pong"`, a Gymnasium id such as `"CartPole-v1"`, or your own
            `"module:factory"`.
        num_envs: Number of environments.
        seed: Seed of all environments; each one gets its own from it.
        threads: Threads that step the environments (Atari only).
        atari: Settings of `environment.atari`, such as `{"noop_max": 0}`.
        **kwargs: Arguments of the environment (Gymnasium and your own).

    Raises:
        SeedbedError: ENVIRONMENT, the environment cannot be made; CONFIG, a setting is wrong.
    """
    if num_envs < 1:
        raise SeedbedError(ExitCode.CONFIG, f"num_envs {num_envs}: it takes at least 1")
    try:
        settings = {"id": env_id, "kwargs": kwargs, **({"atari": atari} if atari else {})}
        environment = Environment.model_validate(settings)
    except ValidationError as error:
        raise SeedbedError(ExitCode.CONFIG, f"{env_id}: {error}") from error
    seeds = [environment_seed(seed, 0, 0, i) for i in range(num_envs)]
    return make_vector_env(environment, num_envs, threads, seeds)
