"""Words for wrong settings, and warnings for settings without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.config.explain import settings_named
from seedbed.config.load import load_experiment, parse_experiment
from seedbed.config.shipped import shipped_experiments
from seedbed.config.without_effect import settings_without_effect
from seedbed.runtime.exit_codes import ConfigError

YAML = "name: x\nenvironment: {id: CartPole-v1}\nlearner: {network: mlp}\n"


def refusal(text: str = YAML, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse_experiment(text, overrides, "file.yaml")
    return str(error.value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("learner.batchsize=3", "unknown key (given 3): did you mean learner.batch_size?"),
        ("batch_size=3", "unknown key (given 3): did you mean learner.batch_size?"),
        ("learning_rate=3", "unknown key (given 3): did you mean learner.optimizer.learning_rate?"),
        ("learner.lr=3", "unknown key (given 3): did you mean learner.optimizer.learning_rate?"),
        ("gamma=1", "unknown key (given 1): did you mean ppo.discount?"),
        ("learner.nonsense=1", "unknown key (given 1): learner has the keys backend, device"),
        ("learner.batch_size=abc", 'must be an integer, given "abc"'),
        ("learner.batch_size=-3", "must be at least 1, given -3"),
        ("stop.updates=1.5", "must be an integer, given 1.5"),
        (
            "seed=1,2,3",
            'must be an integer, given "1,2,3": a run has one value; `seedbed sweep`',
        ),
        (
            "learner.optimizer.learning_rate=[1e-3, 1e-2]",
            "must be a number, given [0.001, 0.01]: a run has one value; `seedbed sweep`",
        ),
        ("learner=3", "is a section with the keys backend, device"),
        ("environment.kwargs=3", "must be a mapping of keys to values, given 3"),
        ("learner.backend=jxa", "must be 'tensorflow' or 'jax' (did you mean jax?)"),
        ("name=A B", "must have 1 to 35 lower-case letters, digits and hyphens"),
    ],
)
def test_a_wrong_override_is_blamed_on_itself_in_our_words(override: str, words: str) -> None:
    message = refusal(YAML, override)
    assert message.startswith(f"--set {override}: {words}"), message
    for theirs in ("Input should", "String should", "valid dictionary"):
        assert theirs not in message


def test_a_wrong_key_of_the_file_is_blamed_on_the_file() -> None:
    text = YAML.replace("network: mlp", "network: mlp, batchsize: 3")
    words = "learner.batchsize: unknown key (given 3): did you mean learner.batch_size?"
    assert refusal(text, "stop.updates=3") == f"file.yaml: {words}"


@pytest.mark.parametrize(
    ("word", "agent", "key"),
    [
        ("--gamma", "r2d2", "r2d2.discount"),
        ("optimizer.learning_rate", "vtrace", "learner.optimizer.learning_rate"),
        ("--learning-rate", "vtrace", "learner.optimizer.learning_rate"),
        ("optimizer", "vtrace", "learner.optimizer"),
        ("epochs", "vtrace", "learner.epochs_per_batch"),
        ("discount", "dqn", "dqn.discount"),
    ],
)
def test_a_leafs_name_means_its_setting(word: str, agent: str, key: str) -> None:
    assert settings_named(word, agent)[0] == key


def test_an_entry_of_a_mapping_is_blamed_on_what_has_it() -> None:
    text = YAML.replace("CartPole-v1", "CartPole-v1, kwargs: {f: .inf}")
    words = "environment.kwargs: f: inf is kept by no file"
    assert refusal(text, "environment.kwargs.a=1.0").startswith(f"file.yaml: {words}")
    own = "environment.kwargs.f=.nan"
    assert refusal(text, own).startswith(f"--set {own}: environment.kwargs: f: nan")


def test_a_missing_file_names_those_that_are_near(tmp_path: Path) -> None:
    (tmp_path / "cartpole.yaml").write_text(YAML)
    with pytest.raises(ConfigError, match=r"did you mean \S+/cartpole\.yaml\?"):
        load_experiment(tmp_path / "cartpol.yaml")


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["r2d2.discount=0.5"], "r2d2.discount has no effect: the agent is ppo"),
        (
            ["environment.atari.noop_max=3"],
            "environment.atari.noop_max has no effect: the environment is CartPole-v1",
        ),
        (
            ["environment.vizdoom.height=36"],
            "environment.vizdoom.height has no effect: the environment is CartPole-v1",
        ),
        (
            ["environment.football.smm=120x90"],
            "environment.football.smm has no effect: the environment is CartPole-v1",
        ),
        (
            ["learner.backend=jax", "learner.operation_threads=2"],
            "learner.operation_threads has no effect: learner.backend is jax",
        ),
        (
            ["environment.id=vizdoom:basic", "environment.lab.width=48"],
            "environment.lab.width has no effect: the environment is vizdoom:basic",
        ),
        (
            ["learner.replay.capacity=9000"],
            "learner.replay.capacity has no effect: ppo has no replay",
        ),
        (
            ["learner.optimizer.name=rmsprop", "learner.optimizer.beta_1=0.5"],
            "learner.optimizer.beta_1 has no effect: the optimizer is rmsprop",
        ),
        (["gossip.staleness=3"], "gossip.staleness has no effect: gossip.replicas is 1"),
        (
            ["actor.threads=2"],
            "actor.threads has no effect: only Atari with the fast preprocessing steps in threads",
        ),
        (
            ["environment.id=atari:Pong", "actor.workers=2"],
            "actor.workers has no effect: Atari with the fast preprocessing steps in actor.threads",
        ),
    ],
)
def test_a_setting_without_effect_is_named(overrides: list[str], line: str) -> None:
    assert settings_without_effect(parse_experiment(YAML, overrides)) == [line]


def test_what_is_given_as_it_is_by_default_is_no_warning() -> None:
    assert settings_without_effect(parse_experiment(YAML, ["r2d2.discount=0.997"])) == []
    for name in shipped_experiments():
        assert settings_without_effect(load_experiment(name)) == []


@pytest.mark.parametrize(
    ("setting", "most"),
    [
        ("actor.groups=33", "at most 32"),
        ("actor.envs_per_group=4097", "at most 4096"),
        ("actor.processes=16385", "at most 16384"),
        ("evaluation.num_envs=5000", "at most 4096"),
    ],
)
def test_what_has_no_seed_of_its_own_is_refused_as_a_setting(setting: str, most: str) -> None:
    with pytest.raises(ConfigError, match=f"--set {setting}: must be {most}"):
        parse_experiment("name: many\nenvironment: {id: CartPole-v1}", [setting])
