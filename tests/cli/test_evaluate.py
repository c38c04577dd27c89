"""`seedbed evaluate` on a checkpoint: one JSON object, reproducible, with a video that plays."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import imageio.v2 as imageio
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from keras import ops

from seedbed.backends.state import named_variables
from seedbed.cli.main import main
from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.envs import make_vector_env
from seedbed.factory import build_agent
from seedbed.optimizers import build_optimizer
from seedbed.runs.directory import open_run_directory
from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.stored import open_store, read_checkpoint
from seedbed.runtime.exit_codes import ExitCode

NAME = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


class Walk(gymnasium.Env[Any, Any]):
    """A chain of 12 places: one action steps on, the other back. Ends at either end."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = Box(0, 1, (12,), np.float32)
        self.action_space = Discrete(2)
        self.render_mode = render_mode
        self.place = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(3, 9))
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1 if action else -1
        return self._see(), float(action), self.place in (0, 11), False, {}

    def render(self) -> Any:
        picture = np.zeros((21, 121, 3), np.uint8)  # odd sides
        picture[:, 10 * self.place : 10 * self.place + 10, 0] = 255
        return picture

    def _see(self) -> Any:
        return np.eye(12, dtype=np.float32)[self.place]


def make_run(path: Path, yaml: str) -> Path:
    """A run directory with one checkpoint of a new network, at 9 updates and 1234 frames."""
    experiment = parse_experiment(yaml, [f"learner.backend={NAME}"])
    group = make_vector_env(experiment.environment, 1, 1, [0])
    spec = group.spec
    group.close()
    model = build_agent(experiment, spec).model
    names, _ = named_variables(model, build_optimizer(experiment, 1))
    arrays = {
        name: ops.convert_to_numpy(v)
        for name, v in zip(names, model.trainable_variables, strict=True)
    }
    meta = {
        "experiment": dump_experiment(experiment),
        "spec": spec.to_json(),
        "counters": {"updates": 9, "env_frames": 1234},
    }
    with open_run_directory(path, experiment) as directory:
        directory.store.save(arrays, meta, 9)
    return path


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (
        f"name: walk\nenvironment: {{id: '{__name__}:Walk'}}\n"
        "learner: {network: mlp, frame_stack: 1}"
    )
    return make_run(tmp_path_factory.mktemp("walk") / "run", text)


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[dict[str, Any], str]:
    code = main(["evaluate", "--trust", *map(str, words)])
    out, err = capsys.readouterr()
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 1, "stdout is one JSON object and nothing else"
    return json.loads(lines[0]), err


@pytest.mark.slow_on_jax
@pytest.mark.backends
def test_one_json_object_with_exactly_the_episodes_asked_for(
    walk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result, err = call(capsys, walk, "--episodes", 21, "--num-envs", 4)
    assert result["environment"].endswith(":Walk")
    assert result["checkpoint"].endswith("checkpoint-000000000009.safetensors")
    assert (result["env_frames"], result["updates"]) == (1234, 9)
    assert result["episodes"] == len(result["returns"]) == 21
    assert result["mean"] == pytest.approx(np.mean(result["returns"]))
    assert (result["policy"], result["human_normalised"]) == ("sample", None)
    assert "21 episodes, sample policy: mean" in err
    again, _ = call(capsys, walk, "--episodes", 21, "--num-envs", 4)
    assert again["returns"] == result["returns"]
    other, _ = call(capsys, walk, "--episodes", 21, "--num-envs", 4, "--seed", 2)
    assert other["returns"] != result["returns"]
    greedy, _ = call(capsys, walk, "--episodes", 8, "--policy", "greedy", "--max-steps", 30)
    assert greedy["policy"] == "greedy"
    by_file, _ = call(capsys, walk, "--checkpoint", result["checkpoint"], "--episodes", 1)
    assert by_file["standard_error"] is None


@pytest.mark.slow
def test_a_worker_follows_a_run_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for checkpoints, skips those that come too soon, and takes the last in any case."""
    text = (
        f"name: walk\nenvironment: {{id: '{__name__}:Walk'}}\n"
        "learner: {network: mlp, frame_stack: 1}"
    )
    run = make_run(tmp_path / "run", text)
    first = read_checkpoint(run)
    store = open_store(run)

    def later(updates: int, frames: int) -> None:
        counters = {"updates": updates, "env_frames": frames, "seconds": 60.0}
        store.save(first.arrays, {**first.meta, "counters": counters}, updates)

    waits = iter(
        [
            lambda: later(20, 1500),
            lambda: later(30, 2500),
            lambda: later(40, 2600),
            lambda: (run / "summary.json").write_text("{}"),
        ]
    )
    monkeypatch.setattr("seedbed.cli.evaluate.time.sleep", lambda _: next(waits)())
    words = ["evaluate", str(run), "--trust", "--follow", "--every", "1000", "--episodes", "2"]
    assert main(words) == 0
    rows = read_evaluations(run)
    assert [int(row["updates"]) for row in rows] == [9, 30, 40]
    assert next(waits, None) is None
    assert len(capsys.readouterr().out.splitlines()) == 3
    # What it has evaluated it does not evaluate again, by whatever way it comes to the folder.
    assert main(words) == 0
    assert len(read_evaluations(run)) == 3
    monkeypatch.chdir(run.parent)
    assert main([words[0], run.name, *words[2:]]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 0

    # A folder of rows that is not there is made before an episode is played.
    assert main([*words, "--rows", str(tmp_path / "a" / "b")]) == 0
    assert len(read_evaluations(tmp_path / "a" / "b")) == 1

    # A container of a pod stays when the run is over, until a signal.
    def signalled(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seedbed.cli.evaluate.time.sleep", signalled)
    assert main([*words, "--linger"]) == 130
    assert len(read_evaluations(run)) == 3
    assert main([*words[:2], "--linger"]) == ExitCode.CONFIG


@pytest.mark.slow
@pytest.mark.backends
@pytest.mark.parametrize("agent", ["r2d2", "dqn"])
def test_agents_of_action_values_are_greedy_but_for_their_epsilon(
    agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless told otherwise. A new network leads one way; at ε = 1 the walk is random."""
    returns = {}
    for epsilon in (0.0, 1.0):
        learner = {"r2d2": "lstm_units: 8, unroll_length: 10", "dqn": "unroll_length: 1"}[agent]
        text = (
            f"name: walk\nenvironment: {{id: '{__name__}:Walk'}}\nagent: {agent}\n"
            f"learner: {{network: mlp, frame_stack: 1, {learner}}}\n"
            f"{agent}: {{evaluation_epsilon: {epsilon}}}"
        )
        run = make_run(tmp_path / str(epsilon), text)
        for words in ((), ("--seed", 2)):
            result, err = call(capsys, run, "--episodes", 30, "--max-steps", 30, *words)
            assert result["policy"] == "greedy"
            assert "30 episodes, greedy policy: mean" in err
            returns[epsilon, words] = sorted(set(result["returns"]))
    assert len(returns[0.0, ()]) <= 6 < len(returns[1.0, ()])


@pytest.mark.slow
def test_the_video_shows_the_episode(
    walk: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT")
    forks: list[bool] = []
    start = subprocess.Popen

    def popen(*words: Any, **options: Any) -> Any:
        forks.append(options.get("preexec_fn") is not None)
        return start(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    file = tmp_path / "new" / "walk.mp4"
    result, _ = call(capsys, walk, "--episodes", 1, "--max-steps", 40, "--video", file)
    assert forks
    assert not any(forks), "gRPC's threads would not survive a fork"
    monkeypatch.undo()
    assert [path.name for path in file.parent.iterdir()] == ["walk.mp4"]
    with imageio.get_reader(file) as reader:
        pictures = [np.asarray(picture) for picture in reader]
        assert reader.get_meta_data()["fps"] == result["video"]["fps"] == 10
    assert len(pictures) == result["video"]["length"] + 1
    # 21 x 121 pixels times 20, so that the text-book reader finds the red place in each.
    assert pictures[0].shape == (420, 2420, 3)
    red = [picture[210, :, 0].astype(int) > 128 for picture in pictures]
    places = [int(np.flatnonzero(row).mean() // 200) for row in red]
    assert set(np.abs(np.diff(places))) == {1}
    assert 3 <= places[0] < 9


@pytest.mark.slow
def test_atari_is_filmed_with_its_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", "name: pong\nenvironment: {id: 'atari:Pong'}")
    file = tmp_path / "pong.mp4"
    cap = "environment.atari.max_frames_per_episode=40"
    result, _ = call(capsys, run, "--episodes", 3, "--num-envs", 2, "--set", cap, "--video", file)
    assert result["mean_length"] == 10
    assert result["human_normalised"] is None, "40 frames are not Table 9"
    assert result["protocol"]["sticky_action_probability"] == 0
    with imageio.get_reader(file) as reader:
        pictures = [np.asarray(picture) for picture in reader]
    assert len(pictures) == 11
    assert pictures[0].shape == (420, 320, 3)
    colours = np.unique(pictures[-1].reshape(-1, 3) // 32, axis=0)
    assert len(colours) > 4, "the screen is in colour, not the network's gray"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--checkpoint", "8"], ExitCode.CHECKPOINT_READ, "there are: 9"),
        (["--set", "learner.lstm_units=4"], ExitCode.CONFIG, "lstm_units: 0 -> 4"),
        (["--set", "learner.lstm_unit=4"], ExitCode.CONFIG, "unknown key"),
        (["--video", "walk.avi"], ExitCode.USAGE, "must end in .mp4"),
        (["--every", "100"], ExitCode.CONFIG, "--every and --rows go with --follow"),
        (["--rows", "x"], ExitCode.CONFIG, "--every and --rows go with --follow"),
        (["--follow", "--checkpoint", "best"], ExitCode.CONFIG, "best does not go with --follow"),
        (["--follow", "--rows", "/dev/null/x"], ExitCode.CONFIG, "the folder cannot be made"),
    ],
)
def test_what_cannot_be_done_is_said(
    walk: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: ExitCode,
    message: str,
) -> None:
    assert main(["evaluate", str(walk), "--trust", *words]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "--trust", "--episodes", "1", "--max-steps", "5", "--video", "new/walk.mp4"],
        ["export", "--trust", "new"],
        ["plot", "--out", "walk.png"],
    ],
)
def test_what_finds_no_room_is_named_and_leaves_nothing(
    walk: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    columns = "time,env_frames,run_seconds,updates,episodes,mean_return"
    (walk / "progress.csv").write_text(f"{columns}\n0,0,0,0,1,1\n1,9,1,1,2,2\n")
    monkeypatch.chdir(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        code = main([words[0], str(walk), *words[1:]])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == ExitCode.OUTPUT
    assert f"cannot write {words[-1]}" in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_missing_extra_is_named(
    walk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["evaluate", str(walk), "--trust", "--video", "walk.mp4"]) == ExitCode.USAGE
    assert "pip install '.[video]'" in capsys.readouterr().err


def test_an_environment_that_shows_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"name: x\nenvironment: {{id: '{__name__}:make_blind'}}\n"
        "learner: {network: mlp, frame_stack: 1}"
    )
    run = make_run(tmp_path / "run", text)
    words = ["--episodes", "1", "--max-steps", "5", "--video", str(tmp_path / "x.mp4")]
    assert main(["evaluate", str(run), "--trust", *words]) == ExitCode.ENVIRONMENT
    assert "cannot be drawn" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.mp4"))


def make_blind(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """A Walk that draws nothing."""
    walk = Walk(render_mode)
    walk.render = lambda: None  # type: ignore[method-assign]
    return walk
