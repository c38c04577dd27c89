"""The actors' image, which has no library of the learner."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
for name in ("safetensors", "tensorflow", "jax", "keras", "tensorboard", "kubernetes"):
    sys.modules[name] = None  # an import of it fails
import seedbed.cli.actor, seedbed.cli.check_env, seedbed.cli.check_learner, seedbed.cli.replay
import seedbed.launch.actor_group, seedbed.services.actor.actor, seedbed.services.replay.shard
"""


def test_actors_of_a_container_and_shards_need_no_library_of_the_learner() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
