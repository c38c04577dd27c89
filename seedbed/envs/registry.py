"""Factories of vector environments, and the seeds of their environments."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from seedbed.config.environment import Environment
from seedbed.config.schema import Experiment
from seedbed.envs.decorrelate import DecorrelatedVectorEnv
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import VectorEnv

# Seeds of a run: 2^14 actors × 2^5 groups × 2^12 environments = 2^31.
ACTORS = 1 << 14
GROUPS = 1 << 5
ENVIRONMENTS = 1 << 12
_MASK = (1 << 31) - 1


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
        raise ConfigError(f"num_envs {num_envs}: it takes at least 1")
    try:
        settings = {"id": env_id, "kwargs": kwargs, **({"atari": atari} if atari else {})}
        environment = Environment.model_validate(settings)
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
) -> VectorEnv:
    """Make a vector environment.

    Args:
        environment: the experiment's section.
        num_envs: E.
        threads: threads that step the environments. Only Atari `fast` has threads; every other
            vector environment steps in the caller's thread.
        seeds: one for each environment, as `environment_seed` returns them.
        max_failures: failures within ten minutes after which `step` raises. Atari never fails.

    Raises:
        SeedbedError: the environment cannot be made, or its spaces are not supported.
        ValueError: the number of seeds is not E.
    """
    if len(seeds) != num_envs:
        raise ValueError(f"{len(seeds)} seeds for {num_envs} environments: give one for each")
    # Imported here, because an actor needs only the packages of its own environment.
    if not environment.id.startswith("atari:"):
        from seedbed.envs.gymnasium_env import GymnasiumVectorEnv

        return GymnasiumVectorEnv(environment, seeds, max_failures=max_failures)
    if environment.atari.preprocessing == "exact":
        from seedbed.envs.atari_exact import ExactAtariVectorEnv

        return ExactAtariVectorEnv(environment, seeds)
    from seedbed.envs.atari import FastAtariVectorEnv

    return FastAtariVectorEnv(environment, threads, seeds)


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
        max_failures=settings.max_environment_failures,
    )
    if settings.decorrelate_steps:
        return DecorrelatedVectorEnv(made, settings.decorrelate_steps, seeds)
    return made


def environment_seed(run_seed: int, actor_index: int, group_index: int, i: int) -> int:
    """Return the seed of environment `i` of a group of an actor, in 0 .. 2^31-1.

    No two environments of a run share a seed: the three indices are the bits of one 31-bit number,
    and each operation below (an addition, a multiplication by an odd number, a xor with the right
    shift of the number) maps the 31-bit numbers one to one. Neighbouring indices get distant seeds.
    Another `run_seed` gives another order of the same seeds.

    Args:
        run_seed: seed of the experiment.
        actor_index: 0 .. ACTORS-1.
        group_index: 0 .. GROUPS-1.
        i: 0 .. ENVIRONMENTS-1.

    Raises:
        ValueError: an index is out of range.
    """
    for name, index, limit in (
        ("actor_index", actor_index, ACTORS),
        ("group_index", group_index, GROUPS),
        ("environment", i, ENVIRONMENTS),
    ):
        if not 0 <= index < limit:
            raise ValueError(f"{name} {index} has no seed of its own: it takes 0 .. {limit - 1}")
    place = (actor_index * GROUPS + group_index) * ENVIRONMENTS + i
    # Multipliers of the finalizer of MurmurHash3, here modulo 2^31.
    x = (_mix(run_seed & _MASK) + place) & _MASK
    return _mix(x ^ ((run_seed * 0x9E3779B1) & _MASK))


def _mix(x: int) -> int:
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)
