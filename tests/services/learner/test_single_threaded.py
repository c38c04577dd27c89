"""`learner.deterministic`: the same seed gives the same run, bit by bit, in another process."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.checkpoints.format import Checkpoint
from seedbed.config import load_experiment
from seedbed.runs.stored import read_checkpoint

pytestmark = [pytest.mark.backends, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
TIMEOUT_S = 240  # each takes about ten seconds of CPU

# Recurrent, stacked, two actors of two groups, and batches that are cut across blocks.
EXPERIMENT = f"""
name: small
environment: {{id: CartPole-v1}}
actor: {{processes: 2, groups: 2, envs_per_group: 2}}
learner:
  backend: {BACKEND}
  deterministic: true
  network: mlp
  lstm_units: 8
  frame_stack: 2
  unroll_length: 5
  batch_size: 3
stop: {{updates: 12}}
evaluation: {{at_end: false}}
"""

AGENTS = {
    "vtrace": "agent: vtrace\n",
    "a2c": "agent: a2c\n",
    "r2d2": """
agent: r2d2
r2d2: {burn_in: 3, target_update_period: 5, epsilon_levels: 4}
""",
}
R2D2_REPLAY = "  replay: {capacity: 60, min_size: 8, ratio: 0.5}\n"

# Two seeds, one after the other, by the command that users have.
PROGRAM = """
import sys
from seedbed.cli.main import main
for seed in "12":
    code = main(["train", sys.argv[1] + "/x.yaml", "--run-dir", sys.argv[1] + "/" + seed,
                 "--set", "seed=" + seed])
    assert code == 0, code
"""


@pytest.fixture(scope="module", params=list(AGENTS))
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two processes' folders, each with the runs `1` and `2` of these seeds."""
    text = EXPERIMENT.replace("learner:\n", "learner:\n" + R2D2_REPLAY) + AGENTS[request.param]
    if request.param == "a2c":
        text = text.replace("batch_size: 3", "batch_size: 8")  # every environment
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    processes = []
    for number, folder in enumerate(folders):
        (folder / "x.yaml").write_text(text)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(folder)],
                cwd=ROOT,
                # Nor must the order of sets and dicts matter.
                env={**os.environ, "PYTHONHASHSEED": str(number + 1)},
                stdout=(folder / "out").open("w"),
                stderr=(folder / "err").open("w"),
            )
        )
    try:
        codes = [process.wait(TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert codes == [0, 0], (folders[0] / "err").read_text()[-3000:]
    return folders


def trace(run: Path) -> list[dict[str, str]]:
    with (run / "trace.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def newest(run: Path) -> Checkpoint:
    return read_checkpoint(run)


def test_the_same_seed_gives_the_same_actions_losses_and_parameters(runs: list[Path]) -> None:
    one, other = (trace(folder / "1") for folder in runs)
    assert len(one) >= 12
    assert one == other
    assert len({row["loss"] for row in one}) == len(one), "the losses are numbers of training"
    assert len({row["actions_crc32"] for row in one}) > len(one) // 2
    first, second = (newest(folder / "1") for folder in runs)
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        assert array.tobytes() == second.arrays[name].tobytes(), name
    assert first.meta["random"] == second.meta["random"]


def test_another_seed_gives_another_run(runs: list[Path]) -> None:
    one, other = trace(runs[0] / "1"), trace(runs[0] / "2")
    assert all(a["loss"] != b["loss"] for a, b in zip(one, other, strict=True))
    assert one[0]["actions_crc32"] != other[0]["actions_crc32"]


def test_the_counts_are_honest_and_the_stop_condition_is_said(runs: list[Path]) -> None:
    summary = json.loads((runs[0] / "out").read_text().splitlines()[0])
    # Two blocks of one step can complete more than one batch.
    assert summary["stop_reason"] == f"stop.updates: {summary['updates']} of 12"
    assert 12 <= summary["updates"] < 15
    assert summary["updates"] == len(trace(runs[0] / "1"))
    kept = summary["inserted_frames"] or summary["trained_frames"]
    assert summary["env_frames"] == kept + summary["discarded_frames"]
    experiment = load_experiment(runs[0] / "x.yaml")
    batch = experiment.learner.unroll_length * experiment.learner.batch_size
    assert 0 < summary["trained_frames"] <= summary["updates"] * batch
    assert summary["episodes"] > 0
    assert summary["policy_lag_p50"] is not None
    if experiment.agent == "a2c":
        assert summary["updates"] == 12
        assert summary["discarded_frames"] == 0, "every block has been trained on"
