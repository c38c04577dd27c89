"""The code of docs/python.md runs as it is written, and `import seedbed` is light."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seedbed
from seedbed.backends.protocol import Backend
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.backends
def test_the_page_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: Backend,
) -> None:
    page = (ROOT / "docs/python.md").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the processes that it starts
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {}
    for block in re.finditer(r"```python\n(.*?)```", page, re.DOTALL):
        first_line = page[: block.start(1)].count("\n")
        exec(compile("\n" * first_line + block[1], "docs/python.md", "exec"), names)

    assert names["summary"]["stop_reason"].startswith("stop.env_frames: ")
    assert names["result"]["episodes"] == len(names["result"]["returns"]) == 5
    assert names["policy"].updates == names["summary"]["updates"]
    assert names["policy"].experiment.learner.backend == backend.name
    assert (names["returns"] > 0).all()
    assert names["frames"][-1] == names["summary"]["env_frames"]
    assert (tmp_path / "curve.png").stat().st_size > 1000

    # What the page does not show: arrays that do not fit, and the defaults of `act`.
    policy = names["policy"]
    policy.reset(num_envs=2, greedy=True)
    with pytest.raises(ValueError, match=r"observation has the shape \[3, 4\], and \[2, 4\]"):
        policy.act(np.zeros((3, 4)))
    assert policy.act(np.zeros((2, 4))).tolist() == [policy.act(np.zeros((2, 4)))[0]] * 2


def test_a_run_that_fails_raises_its_exit_code_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(SeedbedError, match=r"learner\.no_such=1: unknown key") as error:
        seedbed.train("cartpole-vtrace", tmp_path / "run", ["learner.no_such=1"])
    assert error.value.code is ExitCode.CONFIG
    experiment = seedbed.load_experiment("cartpole-vtrace")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(SeedbedError, match=r"other.*\(RUN_DIRECTORY: ") as error:
        seedbed.train(experiment, tmp_path / "other")
    assert error.value.code is ExitCode.RUN_DIRECTORY
    assert "exit code 22" in capsys.readouterr().err, "what the command says is shown"


def test_progress_of_runs_that_are_cut_or_shared(tmp_path: Path) -> None:
    with pytest.raises(SeedbedError, match=r"progress.csv cannot be read") as error:
        seedbed.load_progress(tmp_path)
    assert error.value.code is ExitCode.RUN_DIRECTORY
    (tmp_path / "learner-1").mkdir()
    file = tmp_path / "learner-1" / "progress.csv"
    file.write_text("env_frames,mean_return,bottleneck\n8,,CPU\n16,2.5,CPU\n24,3")
    with pytest.raises(SeedbedError, match="name one of learner-1"):
        seedbed.load_progress(tmp_path)
    progress = seedbed.load_progress(tmp_path / "learner-1")
    np.testing.assert_array_equal(progress["env_frames"], [8, 16])
    np.testing.assert_array_equal(progress["mean_return"], [np.nan, 2.5])
    assert progress["bottleneck"].tolist() == ["CPU", "CPU"]


def test_environments_by_id() -> None:
    env = seedbed.make_env("CartPole-v1", num_envs=2, seed=3)
    step = env.reset()
    assert isinstance(step, seedbed.TimeStep)
    assert step.observation.shape == (2, 4)
    env.close()
    env = seedbed.make_env("atari:Pong", atari={"height": 42, "width": 42})
    assert env.reset().observation.shape == (1, 42, 42, 1)
    env.close()
    with pytest.raises(SeedbedError, match=r"atari:Pong.*\n.*no_such"):
        seedbed.make_env("atari:Pong", atari={"no_such": 1})


def test_a_light_import_with_every_public_name() -> None:
    code = (
        "import sys, seedbed\n"
        "assert not {'keras', 'grpc', 'numpy', 'pydantic'} & sys.modules.keys()\n"
        "for name in set(seedbed.__all__) - {'ops'}: getattr(seedbed, name)\n"
        "assert not {'keras', 'tensorflow', 'jax', 'gymnasium'} & sys.modules.keys()\n"
        "assert set(dir(seedbed)) == set(seedbed.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        _ = seedbed.nosuch  # type: ignore[attr-defined]


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert seedbed.__version__ == project["version"]
