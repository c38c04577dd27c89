"""The experiment's YAML: what is wrong is refused by the key's path, with both numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from seedbed.config import Experiment, load_experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

MINIMAL = "name: pong\nenvironment: {id: 'atari:Pong'}\n"


def refused(text: str, *overrides: str) -> str:
    with pytest.raises(SeedbedError) as caught:
        parse_experiment(text, overrides, "pong.yaml")
    assert caught.value.code == ExitCode.CONFIG
    return str(caught.value)


def test_the_minimal_experiment_is_the_papers_table_9() -> None:
    experiment = parse_experiment(MINIMAL)
    atari = experiment.environment.atari
    assert (atari.height, atari.width, atari.frame_skip) == (84, 84, 4)
    assert (atari.max_frames_per_episode, atari.noop_max) == (108_000, 30)
    assert atari.full_action_space
    assert atari.sticky_action_probability == 0
    assert experiment.vtrace.reward_clip == 0
    assert not experiment.vtrace.life_loss_ends
    assert experiment.learner.frame_stack == 4


def test_what_is_dumped_is_read_again() -> None:
    experiment = parse_experiment(
        MINIMAL,
        ["learner.network=nature", "learner.network_options={standardize: true}"],
    )
    assert parse_experiment(dump_experiment(experiment)) == experiment


def test_an_override_of_a_section_keeps_the_keys_that_it_leaves_out() -> None:
    text = MINIMAL + "\nlearner: {unroll_length: 7, optimizer: {name: adam}}"
    given = "learner={batch_size: 3, optimizer: {learning_rate: 0.5}}"
    learner = parse_experiment(text, [given]).learner
    assert (learner.unroll_length, learner.batch_size) == (7, 3)
    assert (learner.optimizer.name, learner.optimizer.learning_rate) == ("adam", 0.5)


def test_an_empty_override_of_a_section_sets_its_defaults() -> None:
    text = MINIMAL + "stop: {env_frames: 9}\n"
    assert parse_experiment(text, ["stop={}"]).stop == parse_experiment(MINIMAL).stop


def test_an_override_of_a_free_mapping_replaces_it() -> None:
    text = "name: a\nenvironment: {id: CartPole-v1, kwargs: {a: 1}}"
    given = "environment={kwargs: {b: 2}}"
    assert parse_experiment(text, [given]).environment.kwargs == {"b": 2}


def test_overrides_win_and_later_ones_over_earlier(tmp_path: Path) -> None:
    file = tmp_path / "pong.yaml"
    file.write_text(MINIMAL + "seed: 3\n")
    experiment = load_experiment(file, ["seed=4", "learner.optimizer.learning_rate=1e-4", "seed=5"])
    assert experiment.seed == 5
    assert experiment.learner.optimizer.learning_rate == 1e-4
    assert parse_experiment(MINIMAL, ["name=run-2"]).name == "run-2"


@pytest.mark.parametrize("text", ["stop: {env_frames: 2e8}", "stop: {env_frames: 200_000_000}"])
def test_large_numbers_as_people_write_them(text: str) -> None:
    assert parse_experiment(MINIMAL + text).stop.env_frames == 200_000_000
    assert parse_experiment(MINIMAL, ["stop.env_frames=2e8"]).stop.env_frames == 200_000_000


@pytest.mark.parametrize("word", ["inf", "nan", "1e5x", "on-call", "v1.2.3"])
def test_text_stays_text(word: str) -> None:
    experiment = parse_experiment(MINIMAL, [f"logging.wandb.group={word}"])
    assert experiment.logging.wandb.group == word


def test_an_unknown_key_is_named_with_its_path() -> None:
    message = refused(MINIMAL + "learner: {lstm_unit: 256}")
    assert "pong.yaml: learner.lstm_unit: unknown key (given 256)" in message
    assert message.endswith("did you mean learner.lstm_units?")


def test_everything_wrong_is_said_at_once() -> None:
    message = refused(MINIMAL, "seed=-1", "learner.batch_size=many", "learner.backend=torch")
    assert "--set seed=-1: must be at least 0, given -1" in message
    assert "--set learner.batch_size=many: must be an integer" in message
    assert "'tensorflow' or 'jax'" in message


def test_what_is_missing_is_said() -> None:
    assert "environment: missing" in refused("name: pong")
    assert "name: missing" in refused("environment: {id: x}")


DQN = ["agent=dqn", "learner.unroll_length=1"]
A2C = ["agent=a2c", "learner.batch_size=64"]
R2D2 = ["agent=r2d2", "learner.lstm_units=8", "learner.unroll_length=80"]


def test_an_agents_own_numbers_stand_where_none_are_given() -> None:
    def own(*settings: str) -> tuple[int, int, int, int, str]:
        got = parse_experiment(MINIMAL, list(settings))
        numbers = got.passes, got.minibatches, got.queue_batches, got.normalization_frames
        return *numbers, got.initial_weights

    others = (1, 1, 1, 0, "default")
    assert own("agent=ppo") == (4, 4, 0, 400_000, "orthogonal")
    for settings in (["agent=vtrace"], A2C, DQN, R2D2, ["agent=my.agents:Mine"]):
        assert own(*settings) == others
    given = (
        "learner.epochs_per_batch=1", "learner.minibatches=1", "learner.queue_batches=1",
        "learner.normalization_frames=0", "learner.initial_weights=glorot",
    )  # fmt: skip
    assert own("agent=ppo", *given) == (1, 1, 1, 0, "glorot")


def test_a2c_wants_as_many_environments_as_columns_where_it_starts_them() -> None:
    parse_experiment(MINIMAL, A2C)
    parse_experiment(MINIMAL, ["agent=a2c", "actor.processes=0"])  # others start the actors


def test_a_replay_that_just_suffices_is_taken() -> None:
    for more in (
        [*R2D2, "learner.replay.capacity=5064"],
        [*R2D2, "r2d2.burn_in=100", "learner.unroll_length=20", "learner.replay.capacity=5384"],
        [*DQN, "dqn.n_steps=3", "learner.frame_stack=1", "learner.replay.capacity=5192"],
    ):
        parse_experiment(MINIMAL, more)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["vtrace.rho_bar=0.5"], ["0.5", "1.0", "rho_bar >= c_bar"]),
        (["learner.inference.batch_envs=600"], ["600", "512", "never be full"]),
        (["learner.inference.slots=100"], ["512", "100", "never so many"]),
        (["actor.envs_per_group=600"], ["600", "512", "never fit"]),
        (["actor.workers=33"], ["actor.workers 33", "envs_per_group 32", "would have none"]),
        (["actor.processes=33"], ["33 x actor.groups 2", "2112", "slots is 2048", "refused"]),
        (["learner.deterministic=true", "actor.processes=0"], ["deterministic", "is 0"]),
        (["learner.deterministic=true", "gossip.replicas=2"], ["gossip.replicas 2", "one thread"]),
        (["gossip.replicas=2", "gossip.addresses=['h:1']"], ["has 1 addresses", "replicas is 2"]),
        (["gossip.replicas=2", "gossip.deadline_s=900"], ["deadline_s 900", "timeout_s 300"]),
        (
            [
                "gossip.replicas=2",
                "gossip.topology=allreduce",
                "agent=r2d2",
                "r2d2.burn_in=0",
                "learner.replay.storage=device",
            ],
            ["allreduce", "storage device"],
        ),
        (
            ["gossip.replicas=2", "gossip.topology=hogwild", "agent=r2d2", "r2d2.burn_in=0"],
            ["topology hogwild with agent r2d2", "target network"],
        ),
        (["gossip.graphs=[star]"], ["gossip.graphs.0", '"star"']),
        (
            ["learner.network=mlp", "learner.network_options.hidden=3"],
            ["network_options ['hidden'] unknown to network 'mlp'", "units, activation"],
        ),
        (["learner.network=impala"], ["unknown: one of auto, football", '"impala"']),
        (
            ["learner.network_options.width=2"],
            ["network_options ['width'] with network auto", "name the network"],
        ),
        (
            ["agent=sac"],
            ["unknown: one of a2c, dqn, ppo, r2d2, vtrace, or", '"sac"'],
        ),
        (["environment.kwargs={a: 1}"], ["'a'", "environment.atari"]),
        (["agent_options={a: 1}"], ["'a'", "'ppo'"]),
        (["learner.checkpoint.keep=1"], ["learner.checkpoint.keep", "2", "given 1"]),
        (
            ["learner.replay.min_size=9", "learner.replay.capacity=8"],
            ["9", "8", "never begin"],
        ),
        (
            ["learner.replay.ratio_tolerance_batches=0.9"],
            ["learner.replay.ratio_tolerance_batches", "1", "given 0.9"],
        ),
        (["learner.replay.directory=x", "learner.replay.storage=device"], ["'x'", "is device"]),
        (
            ["agent=a2c"],
            ["1 x actor.groups 2 x actor.envs_per_group 32 are 64", "batch_size is 32"],
        ),
        (
            [*A2C, "learner.epochs_per_batch=2"],
            ["learner.epochs_per_batch 2", "a2c is on-policy", "set it to 1"],
        ),
        (
            [*A2C, "learner.minibatches=2"],
            ["learner.minibatches 2", "a2c is on-policy", "set it to 1"],
        ),
        (
            [*DQN, "learner.minibatches=2"],
            ["learner.minibatches 2", "learner.replay.ratio"],
        ),
        (
            ["learner.minibatches=5"],
            ["batch_size 32", "minibatches 5", "multiple of 5"],
        ),
        (["agent=dqn"], ["learner.unroll_length 20", "set it to 1"]),
        ([*DQN, "learner.lstm_units=8"], ["learner.lstm_units 8", "use r2d2"]),
        (
            [*DQN, "learner.epochs_per_batch=2"],
            ["learner.epochs_per_batch 2", "learner.replay.ratio"],
        ),
        (
            [*R2D2, "learner.epochs_per_batch=3"],
            ["learner.epochs_per_batch 3", "learner.replay.ratio"],
        ),
        (["agent=r2d2"], ["r2d2.burn_in 40", "learner.lstm_units is 0"]),
        # Two actors' groups of 32: the first block of each of 64 streams cannot be drawn.
        ([*R2D2, "learner.replay.capacity=5063"], ["5000", "64", "5063", "never begin"]),
        # With a burn-in of 100, 20 steps and 4 frames the first six of each.
        (
            [
                *R2D2,
                "r2d2.burn_in=100",
                "learner.unroll_length=20",
                "learner.replay.capacity=5383",
            ],
            ["5000", "6", "64", "5383", "never begin"],
        ),
        (
            [*DQN, "dqn.n_steps=3", "learner.frame_stack=1", "learner.replay.capacity=5191"],
            ["5000", "3", "64", "5191", "never begin"],
        ),
        (["name=My Run"], ["must have 1 to 35 lower-case letters", '"My Run"']),
        (["stop.env_frames=true"], ["must be an integer, given true"]),
        (['learner.batch_size="16"'], ['must be an integer, given "16"']),
        (["learner.deterministic='yes'"], ['must be true or false, given "yes"']),
        (["stop.mean_return=.nan"], ["stop.mean_return", "finite", "nan"]),
        (["stop.dollars=.inf"], ["stop.dollars", "finite", "inf"]),
        (["stop.dollars=1", "cost.cpu_hour=0", "cost.memory_gib_hour=0"], ["stop.dollars 1"]),
        (["stop.idle_s=5"], ["stop.idle_s", "a pause below 10", "given 5"]),
        (["stop.dollars=1", "cost.accelerators=2"], ["stop.dollars 1", "cost.accelerators 2"]),
    ],
)
def test_impossible_settings_name_both_sides(overrides: list[str], words: list[str]) -> None:
    message = refused(MINIMAL, *overrides)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "overrides", "word"),
    [
        ("[", [], "is not YAML"),
        ("- a", [], "must be a mapping"),
        ("", [], "must be a mapping"),
        (MINIMAL, ["seed"], "must have the form"),
        (MINIMAL, ["name.x=1"], "is a value, not a section"),
        (MINIMAL, ["seed=["], "not YAML"),
        (MINIMAL + "seed: 1\nseed: 2\n", [], "'seed' twice"),
        ("? [a, b]\n: 1\n", [], "a key that is a list"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, overrides: list[str], word: str) -> None:
    assert word in refused(text, *overrides)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SeedbedError, match=r"nosuch\.yaml"):
        load_experiment(tmp_path / "nosuch.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(SeedbedError, match=r"latin\.yaml is not UTF-8"):
        load_experiment(file)


def test_an_experiment_is_immutable() -> None:
    with pytest.raises(ValidationError):
        Experiment.model_validate({"name": "a", "environment": {"id": "b"}}).seed = 3  # type: ignore[misc]
