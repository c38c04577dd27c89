"""Small things are learned over the real wire, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.shard_process import shards
from tests.support.users_environment import users_environment

ROOT = Path(__file__).parents[2]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


CARTPOLE = ROOT / "experiments/cartpole-vtrace.yaml"
# The networks and the agent of Pong, which takes too long for a test.
CATCH = ROOT / "experiments/catch-vtrace.yaml"
SIGNS = """
name: signs
environment: {id: "tests.support.signs:Signs", action_mask: true}
actor: {envs_per_group: 32}
learner:
  network: impala_shallow
  network_options: {standardize: true}
  frame_stack: 1
  unroll_length: 10
  batch_size: 32
  optimizer: {learning_rate: 2.0e-3, max_gradient_norm: 1.0}
agent: ppo
ppo: {discount: 0.5}
evaluation: {at_end: false}
stop: {mean_return: 9.5, env_frames: 400000}
"""
PPO = """
name: ppo
environment: {id: CartPole-v1}
agent: ppo
ppo: {normalize_returns: true}
stop: {mean_return: 400, env_frames: 400000}
"""
PENDULUM = ROOT / "experiments/pendulum-vtrace.yaml"
MINIGRID = ROOT / "experiments/minigrid-vtrace.yaml"
CARTPOLE_A2C = ROOT / "experiments/cartpole-a2c.yaml"
CARTPOLE_DQN = ROOT / "experiments/cartpole-dqn.yaml"
# The sign is seen once, ten steps before it is needed: longer ago than a sequence's burn-in.
T_MAZE = """
name: t-maze
environment: {id: "tests.support.t_maze:TMaze", kwargs: {length: 10}}
actor: {envs_per_group: 16}
agent: r2d2
learner:
  network: mlp
  network_options: {units: [32]}
  lstm_units: 32
  frame_stack: 1
  unroll_length: 10
  batch_size: 32
  replay: {capacity: 4000, min_size: 200, ratio: 4}
  optimizer:
    {learning_rate: 2.0e-3, schedule: linear, decay_env_frames: 32000, max_gradient_norm: 40}
r2d2: {burn_in: 5, target_update_period: 100, dueling_units: 64, epsilon_levels: 32}
evaluation: {episodes: 100}
stop: {env_frames: 30000}
"""


def written(folder: Path, text: str) -> Path:
    """The file of an experiment."""
    file = folder / "experiment.yaml"
    file.write_text(text)
    return file


def train(experiment: Path, run_dir: Path, *settings: str) -> dict[str, object]:
    command = [
        sys.executable, "-m", "seedbed.cli.main", "train", str(experiment),
        "--run-dir", str(run_dir),
        "--set", f"learner.backend={BACKEND}",
    ]  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=users_environment()
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.learning
def test_cartpole_reaches_475(tmp_path: Path) -> None:
    summary = train(CARTPOLE, tmp_path / "run")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    assert float(str(summary["mean_return"])) >= 475
    # The last evaluation played the same policy apart from training.
    assert summary["evaluation"]["mean"] >= 300, summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND == "jax", reason="TensorFlow learns it")
def test_cartpole_with_lstm_and_stacking_learns_in_bfloat16(tmp_path: Path) -> None:
    summary = train(
        CARTPOLE, tmp_path / "run", "learner.precision=bfloat16",
        "learner.lstm_units=32", "learner.frame_stack=2", "stop.mean_return=150",
    )  # fmt: skip
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary


@pytest.mark.learning
def test_ppo_learns_cartpole_by_its_own_numbers(tmp_path: Path) -> None:
    summary = train(written(tmp_path, PPO), tmp_path / "run")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    assert summary["evaluation"]["mean"] >= 300, summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND == "jax", reason="TensorFlow learns it")
def test_impala_learns_cartpole(tmp_path: Path) -> None:
    """The baseline: each actor acts by a copy of the network."""
    settings = "learner.inference.location=actor", "actor.processes=2", "actor.groups=1"
    summary = train(CARTPOLE, tmp_path / "run", *settings)
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    assert summary["evaluation"]["mean"] >= 300, summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND != "jax", reason="TensorFlow trains on one host")
def test_two_hosts_learn_cartpole(tmp_path: Path) -> None:
    summary = train(CARTPOLE, tmp_path / "run", "learner.hosts=2", "stop.mean_return=150")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND == "jax", reason="takes JAX several minutes on two cores")
def test_catch_is_learned_from_pixels(tmp_path: Path) -> None:
    summary = train(CATCH, tmp_path / "run")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND != "jax", reason="JAX learns it")
def test_signs_of_several_arrays_with_masks_are_learned(tmp_path: Path) -> None:
    """A picture, a category and numbers; an action that is not valid would raise."""
    summary = train(written(tmp_path, SIGNS), tmp_path / "run")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow learns it")
def test_the_dictionary_of_minigrid_is_learned(tmp_path: Path) -> None:
    summary = train(MINIGRID, tmp_path / "run", "evaluation.at_end=false")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND != "jax", reason="JAX learns it")
def test_pendulum_is_learned_by_continuous_actions(tmp_path: Path) -> None:
    """About one run of ten stays where the pendulum hangs: then another seed has to learn it."""
    for seed in (1, 2):
        options = f"seed={seed}", "stop.env_frames=700000"
        summary = train(PENDULUM, tmp_path / f"run-{seed}", *options)
        if str(summary["stop_reason"]).startswith("stop.mean_return"):
            break
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    # Random actions have -1,200. The evaluation scales actions to the bounds by itself.
    assert summary["evaluation"]["mean"] > -400, summary


# The agents are written once, and the numerical tests compare the backends: one learns each.
@pytest.mark.learning
@pytest.mark.skipif(BACKEND != "jax", reason="JAX learns it")
def test_a2c_learns_cartpole(tmp_path: Path) -> None:
    """475 is what Gymnasium calls solved. Every row was on-policy."""
    summary = train(CARTPOLE_A2C, tmp_path / "run")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    assert float(str(summary["mean_return"])) >= 475
    assert summary["evaluation"]["mean"] >= 400, summary
    assert summary["policy_lag_p50"] == 0


@pytest.mark.learning
@pytest.mark.skipif(BACKEND != "jax", reason="JAX learns it")
@pytest.mark.parametrize("topology", ["gossip", "allreduce", "hogwild"])
def test_two_learners_learn_cartpole(topology: str, tmp_path: Path) -> None:
    """GALA, all-reduce A2C and A3C: the last 50 episodes of each; random play has 22."""
    summary = train(
        CARTPOLE_A2C, tmp_path / "run", "gossip.replicas=2", f"gossip.topology={topology}",
        "evaluation.at_end=false", "stop.mean_return=150", "stop.env_frames=300000",
    )  # fmt: skip
    assert "stop.mean_return" in str(summary["stop_reason"]), summary
    # Each learner plays its own parameters in its own environments.
    learners: Any = summary["learners"]
    assert len(learners) == 2
    for learner in learners:
        # One that began later has learned less when the mean of both is 150.
        assert learner["mean_return"] >= 40, learner
        # Both took part; a slow one holds no other up, except under all-reduce.
        assert learner["gossip"]["mixes"] >= learner["updates"] / 5, learner


@pytest.mark.learning
@pytest.mark.skipif(BACKEND == "jax", reason="TensorFlow learns it")
def test_dqn_solves_cartpole(tmp_path: Path) -> None:
    """475 is what Gymnasium calls solved; training itself explores."""
    summary = train(CARTPOLE_DQN, tmp_path / "run")
    assert summary["evaluation"]["policy"] == "greedy"
    assert summary["evaluation"]["episodes"] == 20
    assert summary["evaluation"]["mean"] >= 475, summary


@pytest.fixture
def t_maze(tmp_path: Path) -> Path:
    return written(tmp_path, T_MAZE)


@pytest.mark.learning
@pytest.mark.parametrize(
    ("storage", "precision"),
    [("host", "float32"), ("device", "bfloat16"), ("remote", "float32")],
)
def test_r2d2_remembers_the_sign_of_a_t_maze(
    storage: str, precision: str, t_maze: Path, tmp_path: Path
) -> None:
    settings = [f"learner.replay.storage={storage}", f"learner.precision={precision}"]
    with ExitStack() as stack:
        if storage == "device":
            settings.append("learner.replay.transfer_steps=160")
        if storage == "remote":
            if BACKEND == "jax":
                pytest.skip("shards know nothing of the backend")
            both = stack.enter_context(shards(tmp_path, 2, capacity=2000, alpha=0.9))
            names = ", ".join(shard.address for shard in both)
            settings.append(f"learner.replay.shards=[{names}]")
        summary = train(t_maze, tmp_path / "run", *settings)
    assert summary["evaluation"]["mean"] >= 0.9, summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND == "jax", reason="TensorFlow does not learn it")
def test_nobody_leaves_a_t_maze_without_memory(t_maze: Path, tmp_path: Path) -> None:
    """Half of the turns are wrong, to four standard errors: so the other test is one of memory."""
    summary = train(t_maze, tmp_path / "run", "learner.lstm_units=0", "r2d2.burn_in=0")
    assert abs(summary["evaluation"]["mean"]) <= 0.4, summary
