"""TensorBoard's files: the field's tags, the settings, and only what a run uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seedbed.config import parse_experiment
from seedbed.config.hyperparameters import hyperparameters
from seedbed.telemetry import Counters
from tests.support import event_files
from tests.support.event_files import Event, read_events
from tests.support.telemetry_runs import Clock, experiment, make, some_events

TAG = re.compile(r"(charts|eval|losses|speed|system|user)/[a-z0-9_]+")


def of_a_run(run_dir: Path, counters: Counters | None = None) -> list[Event]:
    clock = Clock()
    telemetry, _ = make(run_dir, clock, counters)
    clock.now += 5
    telemetry.tick()
    some_events(telemetry)
    clock.now += 5
    telemetry.tick()
    telemetry.close()
    return read_events(run_dir / "tensorboard")


def test_return_losses_and_speed_have_the_tags_of_the_field(tmp_path: Path) -> None:
    *_, last = of_a_run(tmp_path)
    wanted = {
        "charts/episodic_return": -6, "charts/episodic_length": 20, "charts/mean_return": -6,
        "losses/loss": 3, "losses/entropy": 0.5, "speed/env_fps_60s": 4,
        "speed/updates_per_second": 0.2, "speed/run_dollars": 0.01, "speed/run_seconds": 5,
        "speed/dollars_per_billion_frames": 0.01 / 40 * 1e9, "system/train_step_seconds": 0.03,
        "system/discarded_frames_by_reason_session_ended": 5,
    }  # fmt: skip
    assert {tag: last.scalars[tag] for tag in wanted} == pytest.approx(wanted)
    assert [tag for tag in last.scalars if not TAG.fullmatch(tag)] == []


def test_what_a_run_does_not_use_has_no_card(tmp_path: Path) -> None:
    *_, last = of_a_run(tmp_path)
    assert [tag for tag in last.scalars if re.search("gossip|replay|network_bytes", tag)] == []
    # One stream was refused, for its reward.
    assert [tag for tag in last.scalars if "error" in tag] == ["system/stream_errors_reward"]


def test_a_card_stays_when_its_number_is_0_again(tmp_path: Path) -> None:
    telemetry, _ = make(tmp_path, Clock())
    for sessions in (0, 2, 0):
        telemetry.sessions.connected = sessions
        telemetry.tick()
    shown = [
        event.scalars.get("system/sessions") for event in read_events(tmp_path / "tensorboard")
    ]
    assert shown[-3:] == [None, 2, 0]


def test_labels_become_one_word(tmp_path: Path) -> None:
    telemetry, _ = make(tmp_path, Clock())
    telemetry.gossip.sent_bytes = 7
    telemetry.tick()
    (*_, last) = read_events(tmp_path / "tensorboard")
    assert last.scalars["system/learner_network_bytes_learner_sent"] == 7


def test_an_evaluation_is_one_point_at_the_frames_of_its_checkpoint(tmp_path: Path) -> None:
    telemetry, _ = make(tmp_path, Clock())
    telemetry.sessions.on_step(40, 0.03, 0.0)
    result = {"mean": 7.0, "standard_error": None, "env_frames": 30, "policy": "greedy"}
    telemetry.evaluation.on_evaluation(result)
    telemetry.tick()
    telemetry.tick()
    found = [
        e for e in read_events(tmp_path / "tensorboard") if "eval/evaluation_mean" in e.scalars
    ]
    curves = {"eval/evaluation_mean": 7, "eval/evaluation_env_frames": 30}
    assert [(event.step, event.scalars) for event in found] == [(30, curves)]


def test_the_settings_are_there_as_text_and_as_hyperparameters(tmp_path: Path) -> None:
    (event,) = [event for event in of_a_run(tmp_path) if event.texts]
    (text,) = event.texts.values()
    begin, *yaml, end = text.splitlines()
    assert (begin, end) == ("```yaml", "```")
    assert parse_experiment("\n".join(yaml)) == experiment()
    values = event_files.hyperparameters(event.plugins["hparams", "_hparams_/session_start_info"])
    assert values["learner.optimizer.learning_rate"] == experiment().learner.optimizer.learning_rate
    assert values["environment.id"] == "CartPole-v1"
    assert values["learner.deterministic"] is False
    names, tags = event_files.experiment(event.plugins["hparams", "_hparams_/experiment"])
    assert set(names) == set(values)
    assert {"charts/mean_return", "eval/evaluation_mean"} <= set(tags)


def test_each_curve_of_the_table_is_written(tmp_path: Path) -> None:
    events = of_a_run(tmp_path)
    written = {tag for event in events for tag in event.scalars}
    (table,) = (e.plugins["hparams", "_hparams_/experiment"] for e in events if e.plugins)
    assert set(event_files.experiment(table)[1]) <= written


def test_hyperparameters_are_those_that_count() -> None:
    found = hyperparameters(experiment())
    assert found["ppo.discount"] == experiment().ppo.discount
    assert found.pop("gossip.replicas") == 1  # a set may have several learners beside one
    idle = (
        "dqn.",
        "learner.replay.",
        "gossip.",
        "environment.atari.",
        "stop.",
        "logging.",
        "cost.",
    )
    assert [path for path in found if path.startswith(idle)] == []
    other = experiment(learner={"batch_size": 64}, ppo={"discount": 0.5})
    assert hyperparameters(other).keys() == found.keys() | {"gossip.replicas"}


def test_a_resumed_run_hides_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    of_a_run(tmp_path, Counters(env_frames=660))
    starts = [
        event.step
        for event in of_a_run(tmp_path, Counters(env_frames=700))
        if event.session_status == 1
    ]
    # TensorBoard hides the step itself too, at which the last evaluation of the earlier start is.
    assert sorted(starts) == [661, 701]


def test_every_metric_of_a_learner_has_one_tag(tmp_path: Path) -> None:
    telemetry, _ = make(None, Clock())
    some = {(): 0.0, ("name",): {"x": 0.0}, ("peer", "direction"): {("x", "y"): 0.0}}
    tags = [
        tag
        for metric, _ in telemetry.registry.metrics
        for tag in metric.curves(some.get(metric.labels, {"x": 0.0}))
    ]
    assert len(set(tags)) == len(tags)
    assert [tag for tag in tags if not TAG.fullmatch(tag)] == []
