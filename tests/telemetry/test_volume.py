"""The volume of the run directory, and the goal of the budget, as they are exported."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from seedbed.config import parse_experiment
from seedbed.telemetry import Counters, Telemetry


def test_the_volume_of_the_run_directory_is_exported(tmp_path: Path) -> None:
    text = "name: a\nenvironment: {id: x}\nstop: {env_frames: 4e6, dollars: 3}"
    values = Telemetry(parse_experiment(text), tmp_path, Counters()).registry.values()
    free, total = values["seedbed_run_volume_free_bytes"], values["seedbed_run_volume_bytes"]
    assert isinstance(free, int)
    assert isinstance(total, int)
    usage = shutil.disk_usage(tmp_path)
    # As `df` has it: blocks that are reserved for root are neither used nor free.
    assert total - free == pytest.approx(usage.used, rel=0.1)
    assert 0 < free < total <= usage.total
    assert values["seedbed_run_goal_frames"] == 4_000_000


def test_without_a_run_directory_there_is_no_volume(tmp_path: Path) -> None:
    experiment = parse_experiment("name: a\nenvironment: {id: x}")
    for folder in (None, tmp_path / "gone"):
        ours = Telemetry(experiment, tmp_path, Counters())
        ours.checkpoints._folder = folder
        for name in ("seedbed_run_volume_bytes", "seedbed_run_volume_free_bytes"):
            value = ours.registry.values()[name]
            assert isinstance(value, float)
            assert math.isnan(value)
