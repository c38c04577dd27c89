"""Train Pong with Sample Factory's APPO, on the CPU, until killed.

The wrappers, the network (Nature's) and the loss (PPO) are its own. `Samples: N` in the log counts
time steps, each of four frames. Its V-trace ends its learner. Its defaults of Atari are three times
slower than these settings, which are those of two cores.
"""

import sys

import ale_py.registration
import gymnasium
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl
from sf_examples.atari.atari_utils import make_atari_env
from sf_examples.atari.train_atari import parse_atari_args

# This Gymnasium does not find ALE's environments by itself; the workers import this file, too.
if "PongNoFrameskip-v4" not in gymnasium.registry:
    ale_py.registration.register_v0_v4_envs()

WORKERS, ENVIRONMENTS, ROLLOUT = 2, 16, 32


def main(folder: str) -> int:
    """Train."""
    register_env("atari_pong", make_atari_env)
    settings = {
        "env": "atari_pong",
        "experiment": "pong",
        "train_dir": folder,
        "device": "cpu",
        "async_rl": True,
        "num_workers": WORKERS,
        "num_envs_per_worker": ENVIRONMENTS,
        "worker_num_splits": 2,
        "rollout": ROLLOUT,
        "batch_size": WORKERS * ENVIRONMENTS * ROLLOUT,
        "num_epochs": 1,
        "num_batches_per_epoch": 1,
        "train_for_env_steps": 1_000_000_000,
    }
    return int(run_rl(parse_atari_args([f"--{name}={value}" for name, value in settings.items()])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
