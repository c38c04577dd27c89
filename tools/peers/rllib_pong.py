"""Train Pong with RLlib's IMPALA, on the CPU, until killed.

The environment is Gymnasium's AtariPreprocessing, the network Nature's (without "valid" RLlib pads,
and has more than twice the parameters), the loss V-trace. `trained N` counts time steps, each of
four frames.
"""

import os

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

import ale_py
import gymnasium
import numpy as np
import ray
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune import register_env

RUNNERS, ENVIRONMENTS, FRAGMENT, BATCH = 2, 16, 50, 500
NATURE = [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]]


def make_pong(_: object) -> gymnasium.Env:
    """Return Pong with channels last, as its networks take them."""
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(
        "ALE/Pong-v5", frameskip=1, full_action_space=False, repeat_action_probability=0.0
    )
    env = AtariPreprocessing(env, frame_skip=4, grayscale_obs=True, scale_obs=True)
    space = gymnasium.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32)
    return TransformObservation(
        FrameStackObservation(env, 4), lambda stack: np.moveaxis(stack, 0, -1), space
    )


def main() -> None:
    """Train."""
    register_env("pong", make_pong)
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    model = DefaultModelConfig(
        conv_filters=NATURE,
        conv_activation="relu",
        head_fcnet_hiddens=[512],
        head_fcnet_activation="relu",
        vf_share_layers=True,
    )
    algorithm = (
        IMPALAConfig()
        .environment("pong")
        .env_runners(
            num_env_runners=RUNNERS,
            num_envs_per_env_runner=ENVIRONMENTS,
            rollout_fragment_length=FRAGMENT,
        )
        .learners(num_learners=0, num_gpus_per_learner=0, num_aggregator_actors_per_learner=0)
        .training(lr=5e-4, train_batch_size_per_learner=BATCH, grad_clip=40.0, entropy_coeff=0.01)
        .rl_module(model_config=model)
        .reporting(min_time_s_per_iteration=2)
        .build_algo()
    )
    while True:
        learned = algorithm.train().get("learners", {}).get("__all_modules__", {})
        print("trained", int(learned.get("num_env_steps_trained_lifetime", 0)), flush=True)


if __name__ == "__main__":
    main()
