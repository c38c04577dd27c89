"""`seedbed inspect unroll`: what it writes is one consistent training batch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest

from seedbed.analysis.unroll_files import caption, eventful_envs, shown_steps
from seedbed.backends.protocol import Backend
from seedbed.cli.main import main
from seedbed.runs.stored import open_store

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")

VECTOR = f"""
name: vector
environment: {{id: CartPole-v1}}
actor: {{envs_per_group: 3}}
learner:
  backend: {BACKEND}
  network: mlp
  lstm_units: 8
  frame_stack: 2
  unroll_length: 30
  batch_size: 6
"""
IMAGE = f"""
name: image
environment: {{id: 'atari:Pong', atari: {{max_frames_per_episode: 24}}}}
actor: {{envs_per_group: 2}}
learner: {{backend: {BACKEND}, unroll_length: 10, batch_size: 4}}
"""


def dump(tmp_path: Path, text: str, *words: str) -> dict[str, np.ndarray]:
    (tmp_path / "x.yaml").write_text(text)
    assert main(["inspect", "unroll", str(tmp_path / "x.yaml"), str(tmp_path / "d"), *words]) == 0
    with np.load(tmp_path / "d" / "unroll.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "rows", "stack", "columns", "shape"),
    [
        pytest.param(
            VECTOR,
            31,
            2,
            6,
            (4,),
            id="vector",
            marks=pytest.mark.backends,
        ),
        pytest.param(IMAGE, 11, 4, 4, (84, 84, 1), id="image"),
    ],
)
def test_the_arrays_are_one_training_batch(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    rows: int,
    stack: int,
    columns: int,
    shape: tuple[int, ...],
) -> None:
    arrays = dump(tmp_path, text)
    assert capsys.readouterr().out.strip() == str(tmp_path / "d")
    assert arrays["observation"].shape == (stack - 1 + rows, columns, *shape)
    assert arrays["action"].shape == arrays["log_rho"].shape == (rows - 1, columns)
    for name, bit in (("terminated", 1), ("truncated", 2), ("life_lost", 4), ("first", 8)):
        assert (arrays[name] == (arrays["flags"][stack - 1 :] & bit > 0)).all()
    first = arrays["first"]
    assert first[0].all(), "the first unroll of a session begins with episodes"
    assert (arrays["terminated"] | arrays["truncated"]).any(), "the case is of no use"
    assert (first[1:] == (arrays["terminated"] | arrays["truncated"])[:-1]).all()
    assert (arrays["previous_action"][1:] == np.where(first[1:], -1, arrays["action"])).all()
    # Nothing was trained, so training's forward pass gives the very numbers that acted.
    assert np.abs(arrays["log_rho"]).max() < 1e-4
    assert np.abs(arrays["logits"][:-1] - arrays["behaviour_logits"]).max() < 1e-4
    readme = (tmp_path / "d" / "README.txt").read_text()
    for name, array in arrays.items():
        assert f"\n{name}: {array.dtype} {list(array.shape)}\n" in readme
    assert "new parameters" in readme
    picture = imageio.imread(tmp_path / "d" / "unroll.png")
    assert picture.shape[1] == 1700
    # Green frames, or dashed lines, where episodes begin.
    green = (np.abs(picture[..., :3].astype(int) - [44, 160, 44]) < 12).all(axis=-1)
    assert green.sum() > 200


@pytest.mark.slow
def test_a_run_is_dumped_with_its_parameters_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: Backend
) -> None:
    (tmp_path / "x.yaml").write_text(VECTOR)
    kept = tmp_path / "elsewhere"
    changes = [
        "agent=vtrace",
        "learner.deterministic=true",
        "learner.lstm_units=0",
        "stop.updates=2",
        "evaluation.at_end=false",
        f"learner.checkpoint.directory={kept}",
    ]
    words = ["--run-dir", str(tmp_path / "run")]
    for change in changes:
        words += ["--set", change]
    assert main(["train", str(tmp_path / "x.yaml"), *words]) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    out = tmp_path / "d"
    code = main(["inspect", "unroll", str(tmp_path / "run"), str(out), "--updates", "2"])
    assert code == 0, capsys.readouterr().err
    assert (
        f"{kept}/{open_store(tmp_path / 'run').names()[-1]} and 2 further updates"
        in (out / "README.txt").read_text()
    )
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    changed = {path for path in after if before.get(path) != after[path]}
    assert {path for path in changed if path != out and path.parent != out} <= {tmp_path}


def test_without_matplotlib_the_arrays_are_there_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    dump(tmp_path, VECTOR)
    assert "pip install '.[plots]'" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "d").iterdir()} == {"unroll.npz", "README.txt"}


def test_columns_and_rows_with_something_in_them_are_shown() -> None:
    rows, columns = 101, 5
    arrays = {
        name: np.zeros((rows, columns), bool)
        for name in ("first", "terminated", "truncated", "life_lost")
    }
    arrays |= {
        "reward": np.zeros((rows, columns), np.float32),
        "action": np.zeros((rows - 1, columns), np.int32),
        "log_rho": np.full((rows - 1, columns), -0.25),
    }
    arrays["terminated"][80, 3] = arrays["first"][81, 3] = True
    arrays["reward"][7, 1] = -1
    assert eventful_envs(arrays, 2) == [1, 3]
    assert shown_steps(arrays, 3) == range(57, 101)
    assert shown_steps(arrays, 1) == range(44)
    assert caption(arrays, 7, 1) == "t=7\nr=-1  a=0\nlog ρ=-0.2500"
    assert caption(arrays, 80, 3) == "t=80 TERMINATED\nr=+0  (a=0)", "that action does nothing"
    assert caption(arrays, 100, 3) == "t=100\nr=+0\n(bootstrap)"


@pytest.mark.slow
def test_a_sequence_from_replay(tmp_path: Path) -> None:
    """A batch is drawn as soon as there is one."""
    text = VECTOR.replace("learner:", "agent: r2d2\nr2d2: {burn_in: 5}\nlearner:", 1)
    arrays = dump(tmp_path, text, "--set", "learner.unroll_length=10")
    assert arrays["q"].shape == (16, 6, 2)
    assert arrays["observation"].shape == (17, 6, 4)
    assert (arrays["probability"] > 0).all()
    assert (tmp_path / "d" / "unroll.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_round_of_one_process(tmp_path: Path) -> None:
    """A2C's batch is every environment; of three processes there is one here."""
    text = VECTOR.replace("{envs_per_group: 3}", "{processes: 3, envs_per_group: 3}")
    arrays = dump(tmp_path, text.replace("batch_size: 6", "batch_size: 18") + "agent: a2c\n")
    assert arrays["action"].shape == (30, 6)
    assert np.abs(arrays["log_rho"]).max() < 1e-4
