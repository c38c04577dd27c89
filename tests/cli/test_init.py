"""`seedbed init`: a file of the defaults, which reads as what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.cli.init import ADVICE, experiment_name, experiment_text
from seedbed.cli.main import main
from seedbed.config import load_experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.config.schema import NAME_LETTERS
from seedbed.runtime.exit_codes import ExitCode


def test_the_file_is_the_experiment_of_its_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "CartPole-v1"]) == 0
    out = capsys.readouterr()
    assert out.out == "cartpole-v1.yaml\n"
    assert "seedbed train cartpole-v1.yaml" in out.err
    text = Path("cartpole-v1.yaml").read_text()
    given = load_experiment(Path("cartpole-v1.yaml"))
    alone = parse_experiment("name: cartpole-v1\nenvironment: {id: CartPole-v1}")
    assert given.passes == alone.passes
    same = given.learner.model_copy(update={"epochs_per_batch": alone.learner.epochs_per_batch})
    assert dump_experiment(given.model_copy(update={"learner": same})) == dump_experiment(alone)
    assert "float32[4]" in text
    assert sum(" # " in line for line in text.splitlines()) == len(ADVICE)


@pytest.mark.parametrize("agent", ["vtrace", "ppo"])
def test_it_reads_with_every_agent_that_may_be_the_default(agent: str) -> None:
    alone = parse_experiment(f"name: a\nenvironment: {{id: x}}\nagent: {agent}")
    read = parse_experiment(experiment_text(alone, "nothing"))
    assert (read.agent, read.passes) == (agent, alone.passes)


def test_no_file_is_replaced_and_none_is_left_of_what_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("mine")
    assert main(["init", "CartPole-v1", "--out", str(file)]) == ExitCode.OUTPUT
    assert file.read_text() == "mine"
    assert f"{file} is there already" in capsys.readouterr().err
    absent = main(["init", "CartPol-v1", "--out", str(tmp_path / "new.yaml")])
    assert absent == ExitCode.ENVIRONMENT
    assert "'CartPol-v1' cannot be made" in capsys.readouterr().err
    assert not (tmp_path / "new.yaml").exists()
    nowhere = tmp_path / "no folder" / "a.yaml"
    assert main(["init", "CartPole-v1", "--out", str(nowhere)]) == ExitCode.OUTPUT


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("atari:Pong", "pong"),
        ("minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid-doorkey-5x5-v0"),
        ("ALE/Pong-v5", "ale-pong-v5"),
        ("my_module:make", "make"),
        ("module:___", "experiment"),
        ("x:" + 60 * "y", NAME_LETTERS * "y"),
    ],
)
def test_names(environment: str, name: str) -> None:
    assert experiment_name(environment) == name
    parse_experiment(f"name: {name}\nenvironment: {{id: x}}")
