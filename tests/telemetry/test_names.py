"""One name for a number: of its metric, in progress.csv, status.json and TensorBoard."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from seedbed.replay.replay_buffer import ReplayStats
from seedbed.runs.progress import load_progress
from seedbed.runtime.metrics import Histogram
from seedbed.telemetry import Telemetry
from seedbed.telemetry.names import OLD_NAMES, present_names
from seedbed.telemetry.progress import ProgressFile
from tests.support.telemetry_runs import Clock, make, some_events

UNUSED = ("replay_", "gossip_")


def of_a_run(run_dir: Path | None, is_everything_used: bool = True) -> Telemetry:
    clock = Clock()
    telemetry, _ = make(run_dir, clock)
    some_events(telemetry)
    if is_everything_used:
        telemetry.gossip.begin(3)
        telemetry.replay.buffer = ReplayStats(9, 5, 4, 700, 6, 0)
    clock.now += 5
    telemetry.tick()
    return telemetry


def test_every_column_that_a_metric_has_is_named_by_it() -> None:
    telemetry = of_a_run(None)
    for metric, stats in telemetry.registry.metrics:
        value = metric.value(stats)
        if isinstance(value, Histogram) or not metric.is_column:
            continue
        assert isinstance(value, int | float)
        name = metric.name.removeprefix("seedbed_").removesuffix("_total")
        shown = telemetry.numbers[name]
        same = math.isnan(value) if shown is None else shown == pytest.approx(float(value), abs=1)
        assert same, name
    for stem, labels in telemetry.measured.items():
        for label, value in labels.items():
            assert telemetry.numbers[f"{stem}_{label}"] == value
    assert telemetry.numbers["env_frames"] == 40
    assert telemetry.numbers["replay_waiting_seconds_insert"] == 0
    assert telemetry.numbers["gossip_bound_void"] == 0


def test_what_a_run_does_not_use_has_no_column() -> None:
    numbers = of_a_run(None, is_everything_used=False).numbers
    assert [name for name in numbers if name.startswith(UNUSED)] == []
    assert "mean_return" in numbers


def test_kept_names_lead_to_numbers_of_today() -> None:
    numbers = of_a_run(None).numbers
    assert [name for name in OLD_NAMES.values() if name not in numbers] == []
    assert [name for name in OLD_NAMES if name in numbers] == []


def test_a_number_beside_its_successor_keeps_its_name() -> None:
    assert present_names(["seconds", "return_mean"]) == ["run_seconds", "mean_return"]
    assert present_names(["mean_return", "return_mean"]) == ["mean_return", "return_mean"]


def test_a_run_that_goes_on_renames_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    path.write_text("env_frames,seconds,return_mean,learner_cores\n8,2,,0.5\n")
    names = ["env_frames", "run_seconds", "mean_return", "learner_cpu_cores"]
    assert list(load_progress(tmp_path)) == names
    row = {"env_frames": 16, "run_seconds": 4.0, "mean_return": 1.5, "learner_cpu_cores": 1}
    ProgressFile(path).append(row)
    assert path.read_text() == f"{','.join(names)}\n8,2,,0.5\n16,4,1.5,1\n"
