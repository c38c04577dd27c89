"""What a run says of itself: Prometheus, progress.csv, TensorBoard, status.json, the summary."""

from __future__ import annotations

import csv
import json
import logging
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry import Counters, Telemetry
from tests.support.event_files import read_events
from tests.support.telemetry_runs import Clock, experiment, make, some_events


def samples(telemetry: Telemetry) -> dict[str, float]:
    """Prometheus' samples as `name` or `name{label}`."""
    text = generate_latest(telemetry.registry).decode()
    return {
        "/".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_series_exist_from_the_start() -> None:
    telemetry, _ = make(None, Clock())
    values = samples(telemetry)
    for metric, _ in telemetry.registry.metrics:
        if metric.kind == "histogram":
            assert values[f"{metric.name}_count"] == 0
            assert values[f"{metric.name}_bucket/+Inf"] == 0
        elif metric.kind == "counter" and not metric.labels:
            assert values[metric.name] == 0
    for thread in ("inference", "prefetch", "training"):
        assert values[f"seedbed_busy_fraction/{thread}"] == 0
        assert values[f"seedbed_blocked_fraction/{thread}"] == 0
    assert values["seedbed_stream_errors_total/observation"] == 0
    assert values["seedbed_sessions"] == 0
    assert values["seedbed_run_dollars_per_hour"] == pytest.approx(3.6)
    # There is no return and no loss yet, which is not the same as 0.
    assert math.isnan(values["seedbed_mean_return"])
    assert math.isnan(values["seedbed_loss"])


def test_prometheus_after_some_events() -> None:
    clock = Clock()
    telemetry, _ = make(None, clock)
    some_events(telemetry)
    clock.now += 10
    telemetry.tick()
    values = samples(telemetry)
    wanted = {
        "seedbed_env_frames_total": 40,
        "seedbed_trained_frames_total": 16,
        "seedbed_discarded_frames_total": 5,
        "seedbed_discarded_frames_by_reason_total/session ended": 5,
        "seedbed_updates_total": 2,
        "seedbed_episodes_total": 3,
        "seedbed_abandoned_episodes_total": 2,
        "seedbed_env_fps/10s": 4,
        "seedbed_updates_per_second": 0.2,
        "seedbed_episode_return_count": 3,
        "seedbed_episode_return_sum": -18,
        "seedbed_episode_return_bucket/-21.0": 1,
        "seedbed_episode_return_bucket/-20.0": 1,
        "seedbed_episode_return_bucket/0.0": 2,
        "seedbed_episode_length_sum": 60,
        "seedbed_mean_return": -6,
        "seedbed_inference_latency_seconds_count": 10,
        "seedbed_inference_latency_seconds_bucket/0.005": 8,
        "seedbed_inference_batch_size_sum": 30,
        "seedbed_inference_queue_depth": 1,
        "seedbed_unroll_queue_depth": 3,
        "seedbed_policy_lag_updates_sum": 6,
        "seedbed_train_step_seconds_count": 2,
        "seedbed_sessions": 2,
        "seedbed_environments": 8,
        "seedbed_actor_stepping_fraction": 0.75,
        "seedbed_loss": 4,
        "seedbed_training_scalar/entropy": 0.5,
        "seedbed_stream_errors_total/reward": 1,
        "seedbed_checkpoints_total": 1,
        "seedbed_checkpoint_failures_total": 1,
        "seedbed_checkpoint_bytes": 1000,
        "seedbed_evaluation/mean": 7,
        "seedbed_run_dollars_total": 0.01,
    }
    assert {name: values[name] for name in wanted} == pytest.approx(wanted)


def test_summary_counts_and_knows_nothing_as_none() -> None:
    clock = Clock()
    telemetry, _ = make(None, clock)
    empty = telemetry.summary()
    for name in ("env_fps", "mean_return", "policy_lag_p50", "inference_ms_p50",
                 "inference_ms_p99", "round_trip_ms_p50", "round_trip_ms_p99",
                 "dollars_per_billion_frames"):  # fmt: skip
        assert empty[name] is None
    some_events(telemetry)
    telemetry.stop_reason = "env_frames 40"
    clock.now += 20
    summary = telemetry.summary()
    json.dumps(summary, allow_nan=False)
    wanted = {
        "env_frames": 40,
        "seconds": 20.0,
        "env_fps": 2.0,
        "updates": 2,
        "episodes": 3,
        "mean_return": -6.0,
        "policy_lag_p50": 1.5,
        "inference_ms_p50": 3.0,
        "round_trip_ms_p50": 10.0,
        "dollars": 0.02,
        "dollars_per_billion_frames": 0.02 / 40 * 1e9,
        "stop_reason": "env_frames 40",
    }
    assert {name: summary[name] for name in wanted} == pytest.approx(wanted)
    latencies = np.repeat([1.0, 2.0, 3.0, 4.0, 100.0], 2)
    assert summary["inference_ms_p99"] == pytest.approx(np.percentile(latencies, 99))


def test_round_trips_are_of_the_last_steps_and_not_of_those_before_any_actions() -> None:
    telemetry, _ = make(None, Clock())
    telemetry.sessions.on_step(4, 0.03, 0.0)  # a stream's first step
    assert telemetry.summary()["round_trip_ms_p50"] is None
    for wait_s in (0.010, 0.020, 0.030):
        telemetry.sessions.on_step(4, 0.03, wait_s)
    summary = telemetry.summary()
    assert summary["round_trip_ms_p50"] == pytest.approx(20)
    assert summary["round_trip_ms_p99"] == pytest.approx(29.8)
    for _ in range(4096):
        telemetry.sessions.on_step(4, 0.03, 0.005)
    assert telemetry.summary()["round_trip_ms_p99"] == pytest.approx(5)


def test_mean_return_waits_for_enough_episodes() -> None:
    telemetry, _ = make(None, Clock(), stop={"mean_return": 1.0, "mean_return_episodes": 150})
    telemetry.sessions.on_episodes(np.full(149, 2.0), np.full(149, 10))
    assert telemetry.sessions.mean_return(150) is None
    telemetry.sessions.on_episodes(np.array([152.0]), np.array([10]))
    assert telemetry.sessions.mean_return(150) == pytest.approx(3.0)
    assert telemetry.sessions.mean_return(1) == 152.0


def test_frames_of_a_checkpoint_are_no_frames_of_the_last_seconds_of_several_hosts(
    tmp_path: Path,
) -> None:
    clock, counters = Clock(), Counters()
    telemetry, _ = make(tmp_path, clock, counters)
    others = {"env_frames": 0.0, "trained_frames": 0.0}
    telemetry.join_hosts(lambda: counters, telemetry.own_returns, lambda: others, 0, 1)
    telemetry.tick()
    counters.env_frames += 6_000_000  # of the checkpoint
    clock.now += 10
    telemetry.sessions.on_step(40, 0.1, 0.1)
    others["env_frames"] += 60
    telemetry.tick()
    assert telemetry.numbers["env_fps_10s"] == pytest.approx(10)
    telemetry.close()


def test_restart_counts_on(tmp_path: Path) -> None:
    clock = Clock()
    first, _ = make(tmp_path, clock)
    some_events(first)
    clock.now += 10
    first.tick()
    saved = json.loads(json.dumps([first.counters.to_json(), first.to_json()]))
    first.close()

    counters = Counters()
    second, out = make(tmp_path, clock, counters)
    counters.set_from(saved[0])
    second.restore(saved[1])
    clock.now += 7
    second.cost.account()
    assert counters.seconds == pytest.approx(10), "loading is no training"
    second.sessions.on_step(4, 0.1, 0.1)
    second.cost.account()
    clock.now += 3
    second.tick()
    assert counters.env_frames == 44
    assert counters.seconds == pytest.approx(13)
    assert counters.dollars == pytest.approx(0.02), "a machine that loads costs as much"
    second.cost.end_training()
    clock.now += 10
    second.cost.account()
    assert counters.seconds == pytest.approx(13), "nor is the last evaluation"
    assert second.sessions.mean_return(3) == pytest.approx(-6.0)
    written = rows(tmp_path / "progress.csv")
    assert [row["env_frames"] for row in written] == ["40", "44"]
    # The rate is this process's own: restored totals are no frames of the last seconds.
    assert float(written[-1]["env_fps_10s"]) == pytest.approx(0.4)
    assert "44 frames" in out.getvalue()


def test_no_scalar_of_an_agent_takes_the_column_of_what_is_measured(tmp_path: Path) -> None:
    clock = Clock()
    telemetry, _ = make(tmp_path, clock)
    some_events(telemetry)
    scalars = {"mean_return": 0.25, "loss": 1.0}
    telemetry.training.on_update(
        scalars, lag_updates=np.zeros(1), step_lag=None, step_s=0.1, trained_frames=4
    )
    clock.now += 5
    telemetry.tick()
    (row,) = rows(tmp_path / "progress.csv")
    assert float(row["mean_return"]) == -6
    assert float(row["agent_mean_return"]) == pytest.approx(0.25 / 3)  # of three updates
    telemetry.close()
    telemetry.tick()  # as a thread may that has not heard of the end
    assert len(rows(tmp_path / "progress.csv")) == 1
    assert not telemetry.outputs.failing


def test_progress_and_tensorboard_of_one_interval(tmp_path: Path) -> None:
    clock = Clock()
    telemetry, _ = make(tmp_path, clock)
    clock.now += 5
    telemetry.tick()
    some_events(telemetry)
    clock.now += 5
    telemetry.tick()
    clock.now += 5
    telemetry.tick()
    before, during, after = rows(tmp_path / "progress.csv")
    assert before["mean_return"] == ""  # no episode yet is not a return of 0
    assert before["loss"] == ""
    assert float(during["mean_return"]) == -6
    assert float(during["loss"]) == 3.0  # mean of the interval's updates
    assert after["loss"] == ""  # no update in this interval
    assert float(before["run_seconds"]) == 0  # loading is no training
    assert float(during["run_seconds"]) == 5

    begun, start, settings, first, evaluation, second, third = read_events(tmp_path / "tensorboard")
    assert begun.file_version == "brain.Event:2"
    assert start.session_status == 1
    assert settings.texts
    assert [event.step for event in (first, evaluation, second, third)] == [0, 40, 40, 40]
    assert "charts/episodic_return" not in first.scalars
    assert "losses/loss" not in first.scalars
    assert second.scalars["charts/episodic_return"] == pytest.approx(-6)
    assert second.scalars["losses/loss"] == 3.0
    # Nothing of the kind happened in this interval.
    assert not {"charts/episodic_return", "losses/loss"} & third.scalars.keys()


def test_status_is_whole_json(tmp_path: Path) -> None:
    clock = Clock()
    telemetry, _ = make(tmp_path, clock)
    some_events(telemetry)
    telemetry.training.on_update({"loss": math.nan}, np.array([0.0]), 0.1, 4)
    clock.now += 10
    telemetry.tick()
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "training"
    assert status["scalars"] == {"loss": None}
    assert status["counters"]["env_frames"] == 40
    assert status["numbers"]["sessions"] == 2
    assert status["bottleneck"]["part"]
    assert status["numbers"]["checkpoint_failures"] == 1
    assert not list(tmp_path.glob(".*tmp"))
    telemetry.stop_reason = "seconds 10"
    telemetry.close()
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "finished"


def test_ended_run_keeps_its_bottleneck(tmp_path: Path) -> None:
    clock = Clock()
    telemetry, out = make(tmp_path, clock)
    some_events(telemetry)
    clock.now += 10
    telemetry.tick()
    limit = telemetry.status()["bottleneck"]["part"]
    telemetry.sessions.connected = 0
    telemetry.stop_reason = "seconds 10"
    telemetry.tick()
    telemetry.close()  # nothing is new since the tick
    assert limit not in ("idle", "unknown")
    assert telemetry.summary()["bottleneck"] == limit
    assert json.loads((tmp_path / "status.json").read_text())["bottleneck"]["part"] == limit
    assert len(rows(tmp_path / "progress.csv")) == out.getvalue().count("\n") == 2


def test_what_waits_for_a_compilation_tells_nothing_of_the_network() -> None:
    clock = Clock()
    telemetry, _ = make(None, clock)
    telemetry.cores = math.inf
    telemetry.sessions.connected = 1
    telemetry.phase = "compiling the training step"

    def some_steps(wait_s: float) -> str:
        telemetry.sessions.on_step(4, 0.04, wait_s)
        telemetry.inference.on_batch(4, 4, 0.001, [0.01], 0.01)
        clock.now += 10
        telemetry.tick()
        return str(telemetry.numbers["bottleneck"])

    assert some_steps(0.02) == "unknown"
    telemetry.phase = "training"
    assert some_steps(20.0) == "unknown", "sent while the step was compiled"
    assert some_steps(0.02) == "latency"
    assert some_steps(20.0) == "network"


def test_waiting_says_for_what() -> None:
    clock = Clock()
    telemetry, _ = make(None, clock)
    assert telemetry.waiting() == "no actors are connected"
    telemetry.phase = "compiling the first inference step"
    assert telemetry.waiting() == "compiling the first inference step"
    telemetry.environment_wait = lambda: "waiting 12 s for reset of environment 3 of x (actor 0)"
    assert telemetry.waiting() == "waiting 12 s for reset of environment 3 of x (actor 0)"
    telemetry.phase = "ending: SIGTERM"
    assert telemetry.waiting() == "ending: SIGTERM"
    telemetry.environment_wait = str
    telemetry.phase = "training"
    telemetry.sessions.connected = 3
    assert telemetry.waiting() is None
    clock.now += 12
    assert "decorrelate_steps" in str(telemetry.waiting())
    telemetry.sessions.on_step(4, 0.1, 0.1)
    telemetry.tick()
    clock.now += 12
    telemetry.tick()
    assert telemetry.waiting() == "no step has arrived for 12 s from 3 sessions"
    telemetry.sessions.on_step(4, 0.1, 0.1)
    assert telemetry.waiting() is None


def test_blocked_thread_is_what_the_run_waits_for() -> None:
    telemetry, _ = make(None, Clock())
    telemetry.sessions.connected = 1
    clock = telemetry.busy["inference"]
    now = 0.0
    clock._now = lambda: now
    with clock.blocked("unroll queue full"):
        assert telemetry.waiting() is None  # an ordinary moment
        now = 1e6
        waiting = telemetry.waiting()
    assert waiting is not None
    assert waiting.startswith("inference for ")
    assert waiting.endswith("unroll queue full")


def test_full_disk_does_not_stop_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No file can be written while the run directory is gone."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    telemetry, out = make(run_dir, Clock())
    run_dir.rename(tmp_path / "elsewhere")
    (tmp_path / "run").write_text("a file where the directory was")
    with caplog.at_level(logging.WARNING):
        telemetry.tick()
        telemetry.tick()
    assert len(caplog.records) == 3  # each output once
    assert samples(telemetry)["seedbed_telemetry_errors_total/progress.csv"] == 2
    assert telemetry.status()["failing_outputs"] == ["progress.csv", "status.json", "tensorboard"]
    assert out.getvalue().count("frames") == 2
    (tmp_path / "run").unlink()
    (tmp_path / "elsewhere").rename(run_dir)
    telemetry.tick()
    assert telemetry.status()["failing_outputs"] == []
    assert len(rows(run_dir / "progress.csv")) == 1


def a_user_module(monkeypatch: pytest.MonkeyPatch, function: Any) -> str:
    module = types.ModuleType("a_users_scalars")
    module.mine = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_users_scalars", module)
    return "a_users_scalars:mine"


def test_user_scalars_reach_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_user_module(monkeypatch, lambda n: {"frames_doubled": 2 * n["env_frames"]})
    telemetry, _ = make(tmp_path, Clock(), logging={"scalars": path})
    telemetry.sessions.on_step(4, 0.1, 0.1)
    telemetry.tick()
    assert samples(telemetry)["seedbed_user_scalar/frames_doubled"] == 8
    assert rows(tmp_path / "progress.csv")[0]["user_frames_doubled"] == "8"
    assert read_events(tmp_path / "tensorboard")[-1].scalars["user/frames_doubled"] == 8


def test_failing_user_scalars_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mine(numbers: dict[str, Any]) -> dict[str, float]:
        raise ZeroDivisionError("mine")

    telemetry, out = make(None, Clock(), logging={"scalars": a_user_module(monkeypatch, mine)})
    telemetry.tick()
    telemetry.tick()
    assert len(caplog.records) == 1
    assert "ZeroDivisionError" in caplog.text
    assert "return -" in out.getvalue()


def test_user_scalars_with_names_that_never_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = iter(range(100_000))
    path = a_user_module(monkeypatch, lambda n: {f"x{next(names)}": 1.0 for _ in range(150)})
    telemetry, _ = make(None, Clock(), logging={"scalars": path})
    telemetry.tick()
    telemetry.tick()
    assert "at most 200" in caplog.text
    assert sum(name.startswith("seedbed_user_scalar") for name in samples(telemetry)) == 150


@pytest.mark.parametrize("path", ["nonsense", "no_such_module:f", "math:no_such", "math:pi"])
def test_user_scalars_that_cannot_be_loaded(path: str) -> None:
    with pytest.raises(SeedbedError, match=r"logging\.scalars") as caught:
        make(None, Clock(), logging={"scalars": path})
    assert caught.value.code is ExitCode.CONFIG


def test_wandb_is_only_imported_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it raises ImportError
    make(None, Clock())
    with pytest.raises(SeedbedError, match=r"\[wandb\]") as caught:
        make(None, Clock(), logging={"wandb": {"enabled": True}})
    assert caught.value.code is ExitCode.CONFIG


class FakeWandb(types.ModuleType):
    """Records what the service would be told; the service itself needs an account."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.steps: list[int] = []

    def init(self, **settings: Any) -> FakeWandb:
        self.inits.append(settings)
        return self

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        pass

    def log(self, numbers: dict[str, Any], step: int, commit: bool) -> None:
        assert commit, "W&B would keep a step until the next one"
        self.logged.append(numbers)
        self.steps.append(step)

    def finish(self) -> None:
        pass


def test_wandb_resumes_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for run_dir in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        run_dir.mkdir(exist_ok=True)
        telemetry, _ = make(run_dir, Clock(), logging={"wandb": {"enabled": True}})
        telemetry.sessions.on_step(4, 0.1, 0.1)
        telemetry.close()
    first, second, other = (settings["id"] for settings in fake.inits)
    assert first == second != other
    assert {settings["resume"] for settings in fake.inits} == {"allow"}
    assert fake.inits[0]["config"] == experiment(logging={"wandb": {"enabled": True}}).model_dump(
        mode="json"
    )
    # The names of TensorBoard, over the frames.
    assert fake.logged[0]["env_frames"] == 4
    assert "speed/run_dollars" in fake.logged[0]
    # W&B drops a step that is not above the last one, and the second process has gone back.
    assert fake.steps == [4, 5, 4]
