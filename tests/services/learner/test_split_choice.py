"""`learner.devices: auto`: the smallest number of devices acts that keeps up, measured once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seedbed.backends.roles import Split
from seedbed.services.learner.split_choice import _kept, choose

PROGRAM = """
import logging, sys
from pathlib import Path
from typing import Any
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from seedbed import backends
from seedbed.services.learner.split_choice import divide_devices  # imports no Keras yet
backend = backends.use("jax", device="cpu")
from seedbed.config import parse_experiment
from seedbed.services.learner.components_factory import build_components
from seedbed.spec import ArraySpec, EnvironmentSpec
experiment = parse_experiment(sys.argv[2])
spec = EnvironmentSpec("x", ArraySpec((6,), "float32"), 3, 1)
divide_devices(experiment, spec, backend, Path(sys.argv[1]))
built = build_components(experiment, spec, backend)
training = len(built.trainer._params[0].devices())
print("roles", *backend.split, len(built.inference), training)
"""
EXPERIMENT = (
    "{name: a, environment: {id: x}, agent: %s, actor: {envs_per_group: 4}, "
    "learner: {backend: jax, device: cpu, network: mlp, "
    "lstm_units: 8, batch_size: 4, unroll_length: 5, inference: {max_batch_envs: 8}}}"
)


@pytest.mark.parametrize(
    ("rows_per_s", "batch_size", "most_training", "split", "keeps_up"),
    [
        (10_000, 840, 8, Split(1, 7), True),
        (400, 840, 8, Split(2, 6), True),  # 1 x 400 is below the 700 of 7 that train
        (150, 840, 8, Split(4, 4), True),  # as 600 of 4 x 150 is above 400
        (150, 7, 8, Split(2, 1), True),  # one of 7 or of 1 can train, and 7 leave 1 to act
        (10_000, 32, 8, Split(1, 4), True),  # 32 cannot be divided among 7, 6, or 5
        (1, 840, 8, Split(7, 1), False),
        (10_000, 840, 1, Split(1, 1), True),  # the replay is in the memory of one device
    ],
)
def test_the_fewest_act_that_keep_up(
    rows_per_s: float, batch_size: int, most_training: int, split: Split, keeps_up: bool
) -> None:
    choice = choose(8, batch_size, most_training, rows_per_s, lambda training: 100.0 * training)
    assert (choice.split, choice.keeps_up) == (split, keeps_up)


def run(folder: Path, agent: str, devices: int) -> str:
    """What a start logs, and the roles that it ends with."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), EXPERIMENT % agent],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_a_run_measures_once_and_keeps_its_split(tmp_path: Path) -> None:
    first = run(tmp_path, "r2d2", 3)
    kept = json.loads((tmp_path / "devices.json").read_text())
    acting, training = kept["inference"], kept["training"]
    assert (kept["devices"], acting + training) == (3, 3)
    assert f"of 3 devices: {acting} act, {training} train" in first
    assert f"roles {acting} {training} {acting} {training}" in first
    # A start that measured would choose otherwise than what is written here.
    other = {**kept, "inference": 1, "training": 1}
    (tmp_path / "devices.json").write_text(json.dumps(other))
    second = run(tmp_path, "r2d2", 3)
    assert "1 act, 1 train, as this run began" in second
    assert "roles 1 1 1 1" in second


@pytest.mark.slow
def test_devices_divide_an_update_and_not_its_batch(tmp_path: Path) -> None:
    assert "roles" in run(tmp_path, "ppo", 3)  # 4 unrolls are 4 updates of one
    assert json.loads((tmp_path / "devices.json").read_text())["training"] == 1


@pytest.mark.slow
def test_one_device_is_left_alone(tmp_path: Path) -> None:
    assert "roles 0 1 1 1" in run(tmp_path, "vtrace", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kept", "batch_size", "fits"),
    [
        ({"devices": 4, "inference": 1, "training": 3}, 12, True),
        ({"devices": 4, "inference": 1, "training": 3}, 16, False),  # another batch since
        ({"devices": 3, "inference": 1, "training": 2}, 12, False),
        ({"devices": 4, "inference": 2, "training": 3}, 12, False),
        ({"devices": 4, "inference": 0, "training": 3}, 12, False),
        ({"devices": 4, "inference": "x", "training": 3}, 12, False),
    ],
)
def test_a_kept_split_that_does_not_fit_is_measured_again(
    tmp_path: Path, kept: dict[str, Any], batch_size: int, fits: bool
) -> None:
    file = tmp_path / "devices.json"
    file.write_text(json.dumps(kept))
    assert _kept(file, 4, batch_size) == (Split(1, 3) if fits else None)
