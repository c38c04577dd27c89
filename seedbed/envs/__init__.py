"""Vector environments: Atari, Gymnasium, and environments of users."""

from seedbed.envs.registry import make_actor_env, make_vector_env
from seedbed.envs.seeds import environment_seed

__all__ = ["environment_seed", "make_actor_env", "make_vector_env"]
