"""Factories of vector environments."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from seedbed.config.environment import Environment
from seedbed.config.schema import Experiment
from seedbed.envs.decorrelate import DecorrelatedVectorEnv
from seedbed.envs.seeds import environment_seed
from seedbed.envs.sequential import SequentialVectorEnv
from seedbed.envs.watchdog import DEFAULT_S
from seedbed.runtime.calls import CallRecord
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import ENVIRONMENTS, VectorEnv


def make_env(
    env_id: str,
    num_envs: int = 1,
    seed: int = 0,
    threads: int = 1,
    atari: Mapping[str, Any] | None = None,
    football: Mapping[str, Any] | None = None,
    lab: Mapping[str, Any] | None = None,
    vizdoom: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> VectorEnv:
    """Make a vector environment, whose environments step in lock-step.

    `env.reset()` and `env.step(actions)` return a `TimeStep` of arrays `[num_envs, ...]`. An
    environment whose episode has ended begins the next one in the step after, with `first` set.

    Args:
        env_id: `"atari:Pong"`, `"football:11_vs_11_hard_stochastic"`, `"vizdoom:basic"`, a
            Gymnasium id such as `"CartPole-v1"`, or your own `"module:factory"`.
        num_envs: Number of environments.
        seed: Seed of all environments; each one gets its own from it.
        threads: Threads that step the environments (Atari only).
        atari: Settings of `environment.atari`, such as `{"noop_max": 0}`.
        football: Settings of `environment.football`, such as `{"smm": "120x90"}`.
        lab: Settings of `environment.lab`, such as `{"level_cache": "/levels"}`.
        vizdoom: Settings of `environment.vizdoom`, such as `{"buttons_at_once": 2}`.
        **kwargs: Arguments of the environment (Gymnasium and your own).

    Raises:
        SeedbedError: ENVIRONMENT, the environment cannot be made; CONFIG, a setting is wrong.
    """
    if not 1 <= num_envs <= ENVIRONMENTS:
        raise ConfigError(f"num_envs {num_envs}: it takes 1 to {ENVIRONMENTS}")
    try:
        families = {"atari": atari, "football": football, "lab": lab, "vizdoom": vizdoom}
        settings = {name: given for name, given in families.items() if given}
        environment = Environment.model_validate({"id": env_id, **settings})
        if environment.family and kwargs:  # refused by the schema
            Environment.model_validate({"id": env_id, "kwargs": kwargs, **settings})
        # Objects of Python, too, because no file and no other process has to keep them.
        environment = environment.model_copy(update={"kwargs": kwargs})
    except ValidationError as error:
        raise ConfigError(f"{env_id}: {error}") from error
    seeds = [environment_seed(seed, 0, 0, i) for i in range(num_envs)]
    return make_vector_env(environment, num_envs, threads, seeds)


def make_vector_env(
    environment: Environment,
    num_envs: int,
    threads: int,
    seeds: Sequence[int],
    max_failures: int = 10,
    workers: int = 0,
    timeout_s: float = DEFAULT_S,
    needs_lives: bool = False,
) -> VectorEnv:
    """Make a vector environment.

    Args:
        environment: the experiment's section.
        num_envs: E.
        threads: threads that step the environments. Only Atari `fast` has threads; every other
            vector environment steps in the caller's thread, or in workers.
        seeds: one for each environment, as `environment_seed` returns them.
        max_failures: failures within ten minutes after which `step` raises. Atari never fails, but
            a worker may.
        workers: processes over which the environments are divided, at most one for each; 0: this
            one steps them. Atari `fast` has none.
        timeout_s: seconds after which a call into an environment that has not come back is ended,
            with its process; 0: never.
        needs_lives: the agent reads lost lives.

    Raises:
        SeedbedError: the environment cannot be made, or its spaces are not supported.
        ValueError: the number of seeds is not E.
    """
    if len(seeds) != num_envs:
        raise ValueError(f"{len(seeds)} seeds for {num_envs} environments: give one for each")
    # Imported here, because an actor needs only the packages of its own environment.
    if environment.id.startswith("atari:") and environment.atari.preprocessing == "fast":
        from seedbed.envs.atari import FastAtariVectorEnv

        return FastAtariVectorEnv(environment, threads, seeds, timeout_s)
    if workers:
        from seedbed.envs.workers.vector_env import WorkerVectorEnv

        return WorkerVectorEnv(
            environment,
            seeds,
            min(workers, num_envs),
            max_failures,
            timeout_s,
            needs_lives,
        )
    return make_sequential_env(environment, seeds, max_failures, timeout_s, needs_lives=needs_lives)


def make_sequential_env(
    environment: Environment,
    seeds: Sequence[int],
    max_failures: int,
    timeout_s: float | None = DEFAULT_S,
    record: CallRecord | None = None,
    first: int = 0,
    needs_lives: bool = False,
) -> SequentialVectorEnv:
    """Make a vector environment that steps one environment after the other in the caller's thread.

    Args:
        environment: the experiment's section; not Atari `fast`.
        seeds: one for each environment.
        max_failures: as of `make_vector_env`.
        timeout_s: as of `SequentialVectorEnv`.
        record: as of `SequentialVectorEnv`.
        first: number of the first environment, in messages.
        needs_lives: as of `make_vector_env`.

    Raises:
        SeedbedError: as `make_vector_env`.
    """
    if environment.id.startswith("atari:"):
        from seedbed.envs.atari_exact import ExactAtariVectorEnv

        return ExactAtariVectorEnv(environment, seeds, timeout_s, record, first)
    from seedbed.envs.gymnasium_env import GymnasiumVectorEnv

    return GymnasiumVectorEnv(
        environment,
        seeds,
        max_failures=max_failures,
        timeout_s=timeout_s,
        record=record,
        first=first,
        needs_lives=needs_lives,
    )


def make_actor_env(experiment: Experiment, actor: int, group: int) -> VectorEnv:
    """Make the vector environment of one group of an actor, with seeds of its own.

    Args:
        experiment: its sections `environment` and `actor`, and its seed.
        actor: index of the actor, from 0.
        group: index of the group in the actor, from 0.

    Raises:
        SeedbedError: as `make_vector_env`.
    """
    settings = experiment.actor
    seeds = [
        environment_seed(experiment.seed, actor, group, i) for i in range(settings.envs_per_group)
    ]
    made = make_vector_env(
        experiment.environment,
        settings.envs_per_group,
        settings.threads,
        seeds,
        settings.max_environment_failures,
        settings.workers,
        settings.environment_timeout_s,
        getattr(experiment.builtin_options, "life_loss_ends", False),
    )
    if settings.decorrelate_steps:
        return DecorrelatedVectorEnv(made, settings.decorrelate_steps, seeds)
    return made
