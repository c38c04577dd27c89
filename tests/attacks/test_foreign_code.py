"""A file that names code runs none: not before it is refused, and not unless it is trusted."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from keras import ops

import seedbed
from seedbed.backends.state import named_variables
from seedbed.checkpoints.format import Checkpoint, encode
from seedbed.cli.main import main
from seedbed.config import parse_experiment
from seedbed.config.keys import keys
from seedbed.config.load import dump_experiment
from seedbed.factory import build_agent
from seedbed.launch.evaluation import evaluation_arguments
from seedbed.optimizers import build_optimizer
from seedbed.runs.trust import NAMES, OPTIONS, foreign, stored_experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec, EnvironmentSpec

NAME = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
YAML = "name: x\nenvironment: {id: CartPole-v1}\nlearner: {network: mlp, frame_stack: 1}\n"
SPEC = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)
MODULE = "seedbed_attack_module"


@functools.cache
def arrays() -> dict[str, Any]:
    """Return the parameters of a true checkpoint, so that only its names are wrong."""
    experiment = parse_experiment(YAML)
    model = build_agent(experiment, SPEC).model
    names, _ = named_variables(model, build_optimizer(experiment, 1))
    variables = model.trainable_variables
    return {n: ops.convert_to_numpy(v) for n, v in zip(names, variables, strict=True)}


def checkpoint(*settings: str) -> Checkpoint:
    experiment = parse_experiment(YAML, [f"learner.backend={NAME}", *settings])
    meta = {
        "experiment": dump_experiment(experiment),
        "spec": SPEC.to_json(),
        "counters": {"updates": 9, "env_frames": 1234},
    }
    return Checkpoint("evil.safetensors", arrays(), meta)


@pytest.fixture
def touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Make a module that leaves a file when it is imported; tell whether it did."""
    file = tmp_path / "PWNED"
    (tmp_path / f"{MODULE}.py").write_text(f"open({str(file)!r}, 'w')\nclass Net: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return file.exists


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (f"environment.id={MODULE}:make", f"environment.id '{MODULE}:make'"),
        (f"environment.id={MODULE}:Name-v0", f"environment.id '{MODULE}:Name-v0'"),
        (f"learner.network={MODULE}:Net", f"learner.network '{MODULE}:Net'"),
        (f"agent={MODULE}:Net", f"agent '{MODULE}:Net'"),
        (f"logging.scalars={MODULE}:f", f"logging.scalars '{MODULE}:f'"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "export", "inspect", "load_policy"])
def test_a_file_that_names_a_module_is_refused_before_the_module_is_imported(
    command: str,
    setting: str,
    shown: str,
    tmp_path: Path,
    touched: Callable[[], bool],
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = checkpoint(setting)
    file = tmp_path / "evil.safetensors"
    file.write_bytes(encode(evil.arrays, evil.meta))
    words = {
        "evaluate": ["evaluate", str(file), "--episodes", "1"],
        "export": ["export", str(file), str(tmp_path / "out")],
        "inspect": ["inspect", "unroll", str(file), str(tmp_path / "out")],
    }
    if command == "load_policy":
        with pytest.raises(SeedbedError) as refused:
            seedbed.load_policy(file)
        code, text = refused.value.code, str(refused.value)
    else:
        code, text = ExitCode(main(words[command])), capsys.readouterr().err
    assert not touched()
    assert code is ExitCode.CONFIG
    assert shown in text
    assert "--trust" in text


@pytest.mark.parametrize("command", ["evaluate", "load_policy"])
def test_a_file_is_built_as_it_says_when_it_is_trusted(
    command: str, tmp_path: Path, touched: Callable[[], bool]
) -> None:
    own = checkpoint(f"learner.network={MODULE}:Net")
    file = tmp_path / "own.safetensors"
    file.write_bytes(encode(own.arrays, own.meta))
    if command == "load_policy":
        with pytest.raises(SeedbedError, match="no subclass"):
            seedbed.load_policy(file, trust=True)
    else:
        assert main(["evaluate", str(file), "--episodes", "1", "--trust"]) == ExitCode.CONFIG
    assert touched()


@pytest.mark.parametrize(
    "setting",
    [
        "environment.id=atari:Pong",
        "environment={id: football:academy_empty_goal, football: {smm: 120x90}}",
        "environment={id: lab:explore_goal_locations_small, lab: {level_cache: /levels}}",
        "environment={id: vizdoom:basic, vizdoom: {buttons_at_once: 2}}",
        "environment.kwargs={render_mode: rgb_array, size: [3, 0.5, true, null]}",
        "learner.network_options={units: [8, 8], activation: relu}",
        "learner.network=nature",
    ],
)
def test_what_is_registered_needs_no_trust(setting: str) -> None:
    assert not list(foreign(stored_experiment(checkpoint(setting), trust=False)))


@pytest.mark.parametrize(
    "setting",
    [
        "environment.kwargs={env_id: 'os:Name-v0'}",
        "environment.kwargs={xml_file: /etc/passwd}",
        "environment.kwargs={factory: subprocess.Popen}",
        "environment.kwargs={nested: [[1]]}",
        "environment.lab.config={levelDirectory: levels}",
        "learner.network_options={activation: {class_name: Lambda, config: {}}}",
    ],
)
def test_arguments_that_may_name_code_or_paths_need_trust(setting: str) -> None:
    with pytest.raises(SeedbedError, match=setting.partition("=")[0]):
        stored_experiment(checkpoint(setting), trust=False)
    stored_experiment(checkpoint(setting), trust=True)


def test_the_refusal_shows_no_control_characters_and_has_a_bound() -> None:
    evil = checkpoint(f'environment.id="os:\\e[2J{4000 * "x"}"')
    with pytest.raises(SeedbedError) as refused:
        stored_experiment(evil, trust=False)
    assert len(str(refused.value)) < 1000
    assert str(refused.value).isprintable()


def test_every_setting_that_can_name_a_module_or_hold_any_mapping_is_known_here() -> None:
    experiment: Any = parse_experiment(YAML)
    naming = {key.path for key in keys() if "`module:" in key.description}
    assert naming - {"agent_options"} == set(NAMES)
    mappings = {key.path for key in keys() if isinstance(attrgetter(key.path)(experiment), dict)}
    assert mappings == set(OPTIONS)


def test_an_evaluation_that_a_run_starts_itself_has_the_word_of_who_started_the_run(
    tmp_path: Path,
) -> None:
    assert "--trust" in evaluation_arguments(tmp_path, "newest", parse_experiment(YAML).evaluation)


BOMB = "[" + "&a0 [x, x], " + ", ".join(f"&a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)) + "]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (YAML.replace("-v1}", "-v1, kwargs: {x: " + BOMB + "}}"), "environment.kwargs"),
        (YAML + f"seed: {BOMB}\n", "cannot be read"),
        (YAML + f"unknown: {BOMB}\n", "agent"),
        (YAML + 'unknown: {"\\e[2J": "\\e[2J"}\n"\\e[2J": 3\n', "agent"),
        (YAML + "unknown: " + 5000 * "[" + "\n", "cannot be read"),
        ("- 1\n", "cannot be read"),
        (YAML.replace("learner: {", "learner: {1: 2, "), "cannot be read"),
    ],
    ids=[
        "bomb",
        "bomb of a wrong type",
        "unknown bomb",
        "escapes",
        "deep",
        "list",
        "number as a key",
    ],
)
def test_an_experiment_of_a_file_is_read_or_refused_in_bounded_words(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = checkpoint()
    evil.meta["experiment"] = text + "agent: 'os:getcwd'\n"
    with pytest.raises(SeedbedError, match=message) as refused:
        stored_experiment(evil, trust=False)
    said = str(refused.value) + capsys.readouterr().err
    assert len(said) < 3000
    assert "\x1b" not in said
