"""`seedbed bench accelerator --quick`: all of the first hour, small. No speed is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.accelerator.curves import read_progress
from seedbed.agents.dqn.options import DqnOptions
from seedbed.config import load_experiment
from seedbed.envs.registry import make_env
from tests.bench.quick import bench, check_series
from tests.support.source_imports import ROOT

DEADLINE_S = 600
PARTS = {
    "doctor", "invariant", "inference", "training", "in_gpu_paper", "r2d2_on_device",
    "end_to_end", "curves",
}  # fmt: skip


def cases(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    parts = json.loads(file.read_text())["parts"]
    return {f"{part}/{name}": case for part, some in parts.items() for name, case in some.items()}


@pytest.mark.rehearsal
def test_a_rehearsal_that_is_killed_goes_on_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "first-hour.json"
    arguments = ("accelerator", "--quick", "--minutes", "30", "--json", str(file))
    command = [sys.executable, "-m", "seedbed.cli.main", "bench", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as killed:
        deadline = time.monotonic() + DEADLINE_S
        while len(cases(file)) < 3:
            assert killed.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        killed.kill()
    before = cases(file)
    answer = bench(*arguments)
    assert answer.returncode == 0, answer.stderr
    after = cases(file)
    assert {name: after[name] for name in before} == before, "nothing is measured twice"
    results = json.loads(file.read_text())
    assert results["missing"] == {}
    check(results)
    again = bench("--markdown", str(file))
    assert again.stdout.strip() in answer.stderr, "the tables of the run, again from its JSON"
    # A third call has nothing to do.
    assert bench(*arguments).returncode == 0
    assert cases(file) == after


def check(results: dict[str, Any]) -> None:
    parts = results["parts"]
    assert set(parts) == PARTS
    assert parts["doctor"]["machine"]["devices"]
    for case in parts["invariant"].values():
        assert case["holds"], case
        assert case["policy_spread"] > 0.5, "a policy that ignores its input proves nothing"
    for name, case in parts["inference"].items():
        assert 0 < case["p50_ms"] <= case["p99_ms"]
        assert (case["updates_per_s"] > 0) == name.endswith("/busy")
    for case in parts["training"].values():
        check_series(case["update_ms"])
    paper = parts["in_gpu_paper"]
    assert paper["step/16"]["paper_percent"] == 30.54
    for storage in ("host", "device"):
        run = paper[f"run/32/{storage}"]
        assert run["trained_frames_per_s"] > 0
        assert run["paper_percent_faster_on_device"] == 57.8
    for case in parts["r2d2_on_device"].values():
        assert case["sequences"] == case["wanted"] == 64
        assert case["bytes_a_sequence"] > 84 * 84
    for case in parts["end_to_end"].values():
        assert case["env_frames_per_s"] > 0
        assert set(case["busy"]) >= {"inference", "training"}
    first, second = (parts["curves"][f"Pong/{number}"]["env_frames"] for number in (1, 2))
    assert 0 < first < second, "the run goes on"


def test_a_curve_is_read_from_the_lines_with_a_return(tmp_path: Path) -> None:
    file = tmp_path / "progress.csv"
    assert read_progress(file) == (0.0, [])
    file.write_text("env_frames,run_seconds,mean_return\n4,1,\n8,2,-21\n16,3,\n")
    assert read_progress(file) == (16, [{"env_frames": 8, "run_seconds": 2, "mean_return": -21}])


def test_the_papers_agent_is_the_experiment() -> None:
    config = load_experiment(ROOT / "experiments" / "in-gpu-dqn.yaml")
    learner, replay = config.learner, config.learner.replay
    assert (config.agent, learner.network, learner.network_options["units"]) == (
        "dqn",
        "mlp",
        [128],
    )
    assert (replay.storage, replay.capacity, replay.transfer_steps) == ("device", 10**6, 2_000)
    assert replay.priority_exponent == replay.importance_sampling_exponent == 0
    options = DqnOptions.model_validate(config.agent_options)
    assert (options.dueling_units, options.target_update_period) == (512, 10_000)
    assert config.actor.total_envs == 50
    assert config.stop.env_frames == 8_500_000


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "repeat"),
    [("NullMelee", (27,), "float32", 1), ("NullAtari", (84, 84, 1), "uint8", 4)],
)
def test_null_environments_show_the_same_each_time(
    name: str, shape: tuple[int, ...], dtype: str, repeat: int
) -> None:
    def play() -> list[Any]:
        env = make_env(f"bench.accelerator.environments:{name}", num_envs=3, seed=5)
        spec = env.spec
        assert (spec.observation.shape, spec.observation.dtype) == (shape, dtype)
        assert spec.action_repeat == repeat
        steps = [env.reset()]
        steps += [env.step(np.full(3, t % spec.actions, np.int32)) for t in range(4)]
        seen = [(step.observation.copy(), step.reward.copy()) for step in steps]
        env.close()
        return seen

    for (a, reward_a), (b, reward_b) in zip(play(), play(), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(reward_a, reward_b)
    first = play()[0][0]
    assert not np.array_equal(first[0], first[1]), "environments differ"
