"""Which group serves an `environment.id`, and how environments are seeded."""

from __future__ import annotations

from collections.abc import Sequence

from seedbed.config.environment import Environment
from seedbed.config.schema import Experiment
from seedbed.envs.decorrelate import DecorrelatedVectorEnv
from seedbed.spec import VectorEnv

# Bits of a seed's place in its run: 2^14 actors × 2^5 groups × 2^12 environments = 2^31 seeds.
ACTORS = 1 << 14
GROUPS = 1 << 5
ENVIRONMENTS = 1 << 12
_MASK = (1 << 31) - 1


def make_vector_env(
    environment: Environment,
    num_envs: int,
    threads: int,
    seeds: Sequence[int],
    max_failures: int = 10,
) -> VectorEnv:
    """Make a lock-step group.

    Args:
        environment: the experiment's section.
        environments: E.
        threads: that step the group (Atari `fast` only; the others step in the caller's thread).
        seeds: one for each environment, as `environment_seed` gives them.
        max_failures: failures of environments within ten minutes that end the group
            (Gymnasium only; Atari does not raise).

    Raises:
        SeedbedError: the environment cannot be made, or its spaces are not supported.
        ValueError: the number of seeds is not E.
    """
    if len(seeds) != num_envs:
        raise ValueError(f"{len(seeds)} seeds for {num_envs} environments: give one for each")
    # Imported here: an actor of one kind needs the packages of that kind only.
    if not environment.id.startswith("atari:"):
        from seedbed.envs.gymnasium_env import GymnasiumVectorEnv

        return GymnasiumVectorEnv(environment, num_envs, seeds, max_failures=max_failures)
    if environment.atari.preprocessing == "exact":
        from seedbed.envs.atari_exact import ExactAtariVectorEnv

        return ExactAtariVectorEnv(environment, num_envs, seeds)
    from seedbed.envs.atari import FastAtariVectorEnv

    return FastAtariVectorEnv(environment, num_envs, threads, seeds)


def make_actor_env(experiment: Experiment, actor: int, group: int) -> VectorEnv:
    """Group `group` of actor `actor`, as the experiment has it, with seeds of its own.

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
    return (
        DecorrelatedVectorEnv(made, settings.decorrelate_steps, seeds)
        if settings.decorrelate_steps
        else made
    )


def environment_seed(run_seed: int, actor_index: int, group_index: int, i: int) -> int:
    """The seed of environment `i` of a group of an actor, in 0 .. 2^31-1.

    No two environments of a run share a seed: the three indices are the bits of one 31-bit number,
    and each step below (adding, multiplying by an odd number, xor with a right shift of oneself)
    maps the 31-bit numbers one to one. What is next to each other comes out far apart, and
    another `run_seed` gives another order of the same numbers.

    Raises:
        ValueError: an index outside of 0 .. ACTORS-1, GROUPS-1 or ENVIRONMENTS-1.
    """
    for name, index, limit in (
        ("actor_index", actor_index, ACTORS),
        ("group_index", group_index, GROUPS),
        ("environment", i, ENVIRONMENTS),
    ):
        if not 0 <= index < limit:
            raise ValueError(f"{name} {index} has no seed of its own: it takes 0 .. {limit - 1}")
    place = (actor_index * GROUPS + group_index) * ENVIRONMENTS + i
    # Multipliers of the well-known finaliser of MurmurHash3, here modulo 2^31.
    x = (_mix(run_seed & _MASK) + place) & _MASK
    return _mix(x ^ ((run_seed * 0x9E3779B1) & _MASK))


def _mix(x: int) -> int:
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK
    return x ^ (x >> 16)
