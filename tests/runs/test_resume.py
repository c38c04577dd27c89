"""What may change when a run resumes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.config import Experiment, parse_experiment
from seedbed.config.keys import Key, keys
from seedbed.config.load import dump_experiment
from seedbed.runs.resume import (
    check_resume,
    compare,
    digest,
    keep_recorded,
    named,
    read_stored,
    result_changes,
)
from seedbed.runs.ways_on import WaysOn
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.settings import Section

FIXED = {key.path: key.key_class.reason for key in keys() if key.key_class.name == "identity"}


def experiment(*overrides: str) -> Experiment:
    text = "name: pong\nenvironment: {id: 'atari:Pong'}\nlearner: {network: impala_shallow}"
    return parse_experiment(text, overrides)


def test_every_key_of_the_schema_has_a_class() -> None:
    """A new setting is a decision. The file lists what each key was classified as."""
    lines = (Path(__file__).parent / "key_classes.txt").read_text().splitlines()
    assert lines == sorted(f"{key.path} {key.key_class.name}" for key in keys())
    assert all(key.key_class.reason for key in keys() if key.key_class.name == "identity")


def test_a_key_without_a_class_is_an_error() -> None:
    class Unclassified(Section):
        size: int = 1

    with pytest.raises(TypeError, match=r"a\.size has no class"):
        _ = Key("a.size", Unclassified.model_fields["size"], Unclassified).key_class


def test_the_same_experiment_has_no_changes() -> None:
    assert check_resume(experiment(), experiment(), "runs/pong") == []


def test_free_changes_are_taken() -> None:
    (change,) = check_resume(experiment(), experiment("stop.env_frames=10"), "runs/pong")
    assert change.text == "stop.env_frames: 0 -> 10"


RESULTS = ("learner.optimizer.learning_rate=0.001", "ppo.discount=0.9", "stop.env_frames=10")


def test_what_changes_a_result_is_refused_with_three_ways_on() -> None:
    command = ["seedbed", "train", "pong", "--set", "ppo.discount=0.9", "--run-dir=runs/pong"]
    ways = WaysOn(command, "runs/pong 2")
    with pytest.raises(SeedbedError) as caught:
        check_resume(experiment(), experiment(*RESULTS), "runs/pong", "", ways)
    message = str(caught.value)
    name = digest(result_changes(compare(experiment(), experiment(*RESULTS))))
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert "learner.optimizer.learning_rate: 0.00048 -> 0.001" in message
    assert "ppo.discount: 0.99 -> 0.9" in message
    assert "stop.env_frames" not in message
    assert "seedbed train pong --set ppo.discount=0.9 --run-dir 'runs/pong 2'" in message
    assert f"--run-dir=runs/pong --change {name}" in message
    assert "set back: learner.optimizer.learning_rate=0.00048, ppo.discount=0.99" in message


def test_the_ways_are_complete_commands() -> None:
    old = experiment("learner.checkpoint.directory=gs://b/c/")
    new = experiment("learner.checkpoint.directory=gs://b/c/", "ppo.discount=0.9")
    name = digest(result_changes(compare(old, new)))

    def ways(*command: str, accepted: str = "") -> list[str]:
        given = WaysOn(command, "runs/a-2", "runs/a", "gs://b/c/")
        with pytest.raises(SeedbedError) as caught:
            check_resume(old, new, "x", accepted, given)
        return [line.split(maxsplit=2)[2] for line in str(caught.value).splitlines()[-3:]]

    typed = ["seedbed", "train", "a b.yaml", "--change=c1234567", "--set", "ppo.discount=0.9"]
    elsewhere = "learner.checkpoint.directory=gs://b/c-2"
    assert ways(*typed, accepted="c1234567") == [
        f"seedbed train 'a b.yaml' --set ppo.discount=0.9 --set {elsewhere} --run-dir runs/a-2",
        "seedbed train runs/a",
        f"seedbed train 'a b.yaml' --set ppo.discount=0.9 --change {name}",
    ]
    call = "seedbed.train(experiment, run_dir='runs/a', overrides=['ppo.discount=0.9'])"
    assert ways(call) == [
        f"seedbed.train(experiment, overrides=['ppo.discount=0.9', '{elsewhere}'], "
        "run_dir='runs/a-2')",
        "seedbed.train('runs/a')",
        f"{call[:-1]}, change='{name}')",
    ]


def test_a_digest_accepts_one_difference_and_no_other() -> None:
    name = digest(result_changes(compare(experiment(), experiment(*RESULTS))))
    changes = check_resume(experiment(), experiment(*RESULTS), "runs/pong", name)
    assert [change.key for change in changes] == [
        "learner.optimizer.learning_rate", "ppo.discount", "stop.env_frames",
    ]  # fmt: skip
    # Without a difference there is nothing to accept: the same command resumes.
    assert check_resume(experiment(*RESULTS), experiment(*RESULTS), "runs/pong", name) == []
    others = [RESULTS[:1], (*RESULTS, "ppo.clip_range=2"), ("ppo.discount=0.8", RESULTS[0])]
    for other in others:
        with pytest.raises(SeedbedError, match=f"--change {name} names another difference"):
            check_resume(experiment(), experiment(*other), "runs/pong", name)
    # Nor the way back.
    with pytest.raises(SeedbedError, match="names another difference"):
        check_resume(experiment(*RESULTS), experiment(), "runs/pong", name)


def test_free_settings_do_not_change_the_digest() -> None:
    one = compare(experiment(), experiment(*RESULTS))
    other = compare(experiment(), experiment(*RESULTS[:2], "stop.env_frames=99"))
    assert digest(result_changes(one)) == digest(result_changes(other))


def test_entries_of_a_mapping_are_compared_with_their_types() -> None:
    def made(kwargs: str) -> Experiment:
        return experiment("learner.network=a.b:Net", f"learner.network_options={kwargs}")

    old = made("{a: 1, b: [1, 2], c: {x: 1, y: 2}}")
    assert compare(old, made("{c: {y: 2, x: 1}, b: [1, 2], a: 1}")) == []
    for other in ("a: true", "a: 1.0", "a: '1'"):
        (change,) = compare(old, made(f"{{{other}, b: [1, 2], c: {{x: 1, y: 2}}}}"))
        assert change.text.startswith("learner.network_options.a: 1 -> "), change.text
        assert ", " not in change.text
    (change,) = compare(old, made("{a: 1, b: [2, 1]}"))
    b, c = change.text.split(", learner.network_options.c: ")
    assert b == "learner.network_options.b: [1, 2] -> [2, 1]"
    assert c == "{'x': 1, 'y': 2} -> none"


def test_what_nobody_named_keeps_its_recorded_value(capsys: pytest.CaptureFixture[str]) -> None:
    """A newer version with other defaults resumes the run with the recorded ones, and says so."""
    old = experiment("learner.optimizer.epsilon=0.01", "ppo.discount=0.9", "seed=5")
    new = experiment("ppo.reward_clip=1", "ppo.discount=0.95")
    kept = keep_recorded(old, new, named(new), {"ppo.discount"}, "the run")
    assert kept.learner.optimizer.epsilon == 0.01
    assert kept.seed == 5
    assert (kept.ppo.discount, kept.ppo.reward_clip) == (0.95, 1)
    said = capsys.readouterr().err
    assert "learner.optimizer.epsilon stays 0.01" in said
    # Whoever takes a key back that the recorded command named has changed it.
    back = keep_recorded(old, experiment(), (), {"ppo.discount"}, "the run")
    assert back.ppo.discount == experiment().ppo.discount
    assert named(new) >= {"name", "environment.id", "ppo.reward_clip", "ppo.discount"}
    assert "ppo" not in named(new)


def test_refusals_come_all_at_once_with_both_values_and_the_way_out() -> None:
    new = experiment(
        "learner.lstm_units=256",
        "learner.network_options={standardize: true}",
        "environment.atari.height=42",
        "stop.env_frames=10",
    )
    with pytest.raises(SeedbedError) as caught:
        check_resume(experiment(), new, "runs/pong")
    message = str(caught.value)
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert "learner.lstm_units: 0 -> 256" in message
    assert "learner.network_options.standardize: none -> True" in message
    assert "environment.atari.height: 84 -> 42" in message
    assert "stop.env_frames" not in message
    assert "--init-from" in message


OTHER = {
    "a2c.squash": "true",
    "ppo.squash": "true",
    "a2c.normalize_returns": "true",
    "ppo.normalize_returns": "false",
    "vtrace.normalize_returns": "true",
    "learner.initial_weights": "glorot",
    "environment.action_mask": "true",
    "vtrace.squash": "true",
    "environment.id": "atari:Breakout",
    "environment.atari.full_action_space": "false",
    "environment.football.smm": "120x90",
    "learner.network": "nature",
    "learner.network_options": "{standardize: true}",
    "learner.optimizer.name": "adam",
    "learner.optimizer.momentum": "0.9",
    "agent": "a.b:C",
}
# A section of hyperparameters binds the agent that reads it, and a family's its environments.
FAMILIES = {
    "environment.football": ["environment.id=football:11_vs_11_hard_stochastic"],
    "environment.lab": ["environment.id=lab:rooms_watermaze"],
    "environment.vizdoom": ["environment.id=vizdoom:basic"],
}
AGENTS = {
    "a2c": ["agent=a2c", "learner.batch_size=64"],
    "vtrace": ["agent=vtrace"],
    "dqn": ["agent=dqn", "learner.unroll_length=1"],
    "r2d2": ["agent=r2d2", "learner.lstm_units=8"],
}


@pytest.mark.parametrize("key", sorted(FIXED))
def test_each_fixed_key_is_refused(key: str) -> None:
    base = ["learner.optimizer.name=rmsprop", *AGENTS.get(key.partition(".")[0], [])]
    base += FAMILIES.get(key.rpartition(".")[0], [])
    old = experiment(*base)
    new = experiment(*base, f"{key}={OTHER.get(key, '7')}")
    (change,) = compare(old, new)
    assert (change.key, change.refusal) == (key, FIXED[key])


def test_the_heads_of_another_agent_do_not_bind() -> None:
    changes = compare(
        experiment(*AGENTS["r2d2"]), experiment(*AGENTS["r2d2"], "dqn.dueling_units=7")
    )
    assert [(change.key, change.refusal) for change in changes] == [("dqn.dueling_units", "")]


def test_momentum_binds_only_where_it_adds_or_drops_state() -> None:
    def momentum(value: float, name: str = "rmsprop") -> Experiment:
        return experiment(f"learner.optimizer={{name: {name}, momentum: {value}}}")

    assert [not change.refusal for change in compare(momentum(0.9), momentum(0.5))] == [True]
    assert [not change.refusal for change in compare(momentum(0.9), momentum(0))] == [False]
    assert [
        not change.refusal for change in compare(momentum(0.9, "adam"), momentum(0, "adam"))
    ] == [True]


def test_a_familys_settings_do_not_bind_other_environments() -> None:
    def cartpole(height: int) -> Experiment:
        return experiment("environment.id=CartPole-v1", f"environment.atari.height={height}")

    assert [not change.refusal for change in compare(cartpole(84), cartpole(42))] == [True]
    football = experiment("environment.football.smm=120x90")
    assert [not change.refusal for change in compare(experiment(), football)] == [True]


@pytest.mark.parametrize(("family", "binds"), [("vizdoom", True), ("lab", False)])
def test_settings_of_a_family_bind_its_own_environments(family: str, binds: bool) -> None:
    def doom(height: int) -> Experiment:
        return experiment("environment.id=vizdoom:basic", f"environment.{family}.height={height}")

    (change,) = compare(doom(72), doom(36))
    assert bool(change.refusal) == binds


def test_an_experiment_of_another_version_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    text = dump_experiment(experiment()) + "removed: {a: 1}\n"
    text = text.replace("  wandb:\n", "  wandb:\n    colour: blue\n").replace("seed: 1\n", "")
    assert read_stored(text, "the checkpoint") == experiment()
    said = capsys.readouterr().err
    assert "removed = {'a': 1} of the checkpoint is unknown" in said
    assert "logging.wandb.colour = 'blue'" in said
    for nonsense in ("[", "1", "name: 5\n"):
        with pytest.raises(SeedbedError, match="the checkpoint"):
            read_stored(nonsense, "the checkpoint")
