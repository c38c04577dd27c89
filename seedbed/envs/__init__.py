"""Vector environments: Atari, Gymnasium, and environments of users."""

from seedbed.envs.registry import environment_seed, make_actor_env, make_vector_env

__all__ = ["environment_seed", "make_actor_env", "make_vector_env"]
