"""ViZDoom by its real engine: rows, time limits, actions, refusals, the end of an engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed import make_env
from seedbed.config import parse_experiment
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.vizdoom import SCENARIOS, button_rows
from seedbed.evaluation.video import _rendered
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import VectorEnv
from tests.support.processes import START_S, children, python_path
from tests.support.vector_env_compliance import VectorEnvCompliance
from tests.support.waiting import wait_for

vizdoom = pytest.importorskip("vizdoom", reason="the extra vizdoom is not installed")

ATTACK, LEFT, RIGHT = 3, 1, 2  # of `basic`


def section(scenario: str = "basic", **settings: Any) -> Environment:
    return Environment.model_validate({"id": f"vizdoom:{scenario}", "vizdoom": settings})


def make(scenario: str = "basic", environments: int = 1, seed: int = 0, **settings: Any) -> Any:
    seeds = range(seed, seed + environments)
    return make_vector_env(section(scenario, **settings), environments, 1, seeds)


def act(environments: int, action: int) -> Any:
    return np.full(environments, action, np.int32)


def engines() -> list[int]:
    """The children that are engines, and live."""
    return [pid for pid in children(os.getpid()) if is_engine(pid)]


def is_engine(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"+viz_instance_id" in command  # a zombie has no command


def shared() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("ViZDoom*")}


class TestVizdoom(VectorEnvCompliance):
    """`basic` lasts 75 steps where nothing is hit."""

    steps = 100

    def make(self, seeds: Sequence[int]) -> VectorEnv:
        return make_vector_env(section(), len(seeds), 1, seeds)


def test_pictures_are_those_of_deepmind_lab_in_size() -> None:
    env = make()
    assert str(env.spec.observation) == "uint8[72, 96, 3]"
    assert (env.spec.actions, env.spec.action_repeat) == (4, 4)
    picture = env.reset().observation[0]
    assert picture.std() > 10, "a picture of one colour shows nothing"
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
    other = make(height=36, width=48)
    small = other.reset().observation[0].astype(float)
    # The same moment in another size; the filter takes other pixels.
    means = picture.astype(float).reshape(36, 2, 48, 2, 3).mean((1, 3))
    assert np.corrcoef(small.ravel(), means.ravel())[0, 1] > 0.9
    env.close()
    other.close()


def test_a_time_limit_is_a_truncation_with_its_true_last_picture() -> None:
    """300 tics from tic 14 on; the engine itself would show nothing then."""
    env = make()
    rows = [env.reset()]
    while not (rows[-1].terminated[0] or rows[-1].truncated[0]):
        assert len(rows) < 100, "no end"
        rows.append(env.step(act(1, LEFT if len(rows) % 2 else RIGHT)))
    assert len(rows) - 1 == 75
    assert rows[-1].truncated[0]
    assert sum(float(row.reward[0]) for row in rows) == -300
    assert (rows[-1].observation != rows[-2].observation).any()
    env.close()


def test_the_last_step_before_the_limit_has_the_tics_that_are_left() -> None:
    env = make(action_repeat=7)
    env.reset()
    rewards = [float(env.step(act(1, 0)).reward[0]) for _ in range(43)]
    assert rewards == [-7.0] * 42 + [-6.0]
    assert env.step(act(1, 0)).first[0]
    env.close()


def test_a_monster_that_is_hit_ends_the_episode() -> None:
    """It stands somewhere along a wall: walk along it and shoot."""
    env = make("simpler_basic", 4)
    env.reset()
    ended = np.zeros(4, bool)
    best = np.full(4, -np.inf)
    for k in range(75):
        row = env.step(act(4, ATTACK if k % 2 else (LEFT if k < 25 else RIGHT)))
        ended |= row.terminated
        best = np.maximum(best, row.reward)
    assert ended.any()
    assert best[ended].min() > 80
    env.close()


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_of_the_list_plays(scenario: str) -> None:
    env = make(scenario)
    rows = [env.reset(), *(env.step(act(1, k % env.spec.actions)) for k in range(12))]
    assert not env.failures
    assert any((a.observation != b.observation).any() for a, b in pairwise(rows))
    env.close()


def test_actions_press_no_button_one_or_several() -> None:
    assert button_rows(3, 1) == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert button_rows(3, 2)[4:] == [[1, 1, 0], [1, 0, 1], [0, 1, 1]]
    env = make("health_gathering", buttons_at_once=2)
    assert env.spec.actions == 7
    env.close()
    with pytest.raises(SeedbedError, match="buttons_at_once 4: basic has 3 buttons: MOVE_LEFT, "):
        make(buttons_at_once=4)


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("basik", r"no scenario 'basik'; did you mean basic.* There are basic, deadly_corridor"),
        ("cig", r"no scenario 'cig'; .*There are basic"),  # for several players
        ("folder/my.cfg", r"no scenario 'folder/my\.cfg'; There are basic"),
    ],
)
def test_a_wrong_scenario_is_refused_with_what_there_is(scenario: str, said: str) -> None:
    with pytest.raises(SeedbedError, match=said) as refused:
        make(scenario)
    assert refused.value.code == ExitCode.ENVIRONMENT


def test_settings_and_kwargs_are_refused_before_anything_starts() -> None:
    for tree, said in [
        ("vizdoom: {height: 0}", r"environment\.vizdoom\.height: must be at least 1"),
        ("vizdoom: {size: 84}", r"environment\.vizdoom\.size"),
        ("kwargs: {frame_skip: 4}", r"kwargs \['frame_skip'\] has no effect.*environment\.vizdoom"),
    ]:
        with pytest.raises(SeedbedError, match=said) as refused:
            parse_experiment(f"name: x\nenvironment:\n  id: vizdoom:basic\n  {tree}")
        assert refused.value.code == ExitCode.CONFIG


def test_without_the_package_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "vizdoom", None)
    with pytest.raises(SeedbedError, match=r"-m pip install '\.\[vizdoom\]'") as told:
        make()
    assert told.value.code == ExitCode.ENVIRONMENT


def test_an_engine_that_is_killed_costs_its_own_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = shared()
    env = make(environments=3)
    env.reset()
    env.step(act(3, LEFT))
    first = sorted(engines())
    assert len(first) == 3
    os.kill(first[1], signal.SIGKILL)
    row = env.step(act(3, LEFT))
    assert env.failures == {"step_raised": 1}
    assert row.first.sum() == 1
    assert not (row.terminated | row.truncated).any()
    assert not env.step(act(3, LEFT)).first.any()
    assert len(engines()) == 3
    env.close()
    assert not engines()
    # Of another process that starts an engine now, the names are there for a moment.
    wait_for(lambda: not shared() - before, "no shared memory with a name")
    assert not list(tmp_path.iterdir()), "the engine writes nothing where it is started"


def test_an_actor_that_is_killed_leaves_no_engine(tmp_path: Path) -> None:
    program = (
        "import numpy as np\n"
        "from seedbed.envs.registry import make_env\n"
        "env = make_env('vizdoom:basic', 2)\n"
        "env.reset()\n"
        "print('playing', flush=True)\n"
        "while True: env.step(np.zeros(2, np.int32))\n"
    )
    before = shared()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": python_path()},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        assert process.stdout.readline() == "playing\n"
        started = [pid for pid in children(process.pid) if is_engine(pid)]
        assert len(started) == 2
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not [pid for pid in started if is_engine(pid)], "no engine", START_S)
    wait_for(lambda: not shared() - before, "no shared memory with a name")
    assert not list(tmp_path.iterdir())
    process.stdout.close()


def test_a_video_shows_what_the_policy_sees() -> None:
    """The pictures need no setting, and `environment.kwargs` would be refused."""
    config = parse_experiment("name: x\nenvironment: {id: 'vizdoom:basic'}\nactor: {workers: 1}")
    rendered = _rendered(config)
    assert rendered.actor.workers == 0
    env: Any = make_vector_env(rendered.environment, 1, 1, [0])
    row = env.reset()
    np.testing.assert_array_equal(env.rgb(0), row.observation[0])
    assert env.frames_per_second == 35 / 4
    env.close()


def test_groups_that_start_at_once_start_one_engine_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two at once abort the process now and then, and each actor has two groups."""
    inside, most = [0], [0]
    whole = vizdoom.DoomGame.init

    def init(game: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        try:
            return whole(game)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(vizdoom.DoomGame, "init", init)
    made: list[Any] = []
    groups = [threading.Thread(target=lambda: made.append(make(environments=2))) for _ in range(3)]
    for group in groups:
        group.start()
    for group in groups:
        group.join()
    assert len(made) == 3
    assert most == [1]
    for env in made:
        env.close()


def test_a_library_user_makes_it_by_its_name() -> None:
    group = make_env("vizdoom:basic", num_envs=2, vizdoom={"height": 36, "buttons_at_once": 2})
    assert group.reset().observation.shape == (2, 36, 96, 3)
    assert group.spec.actions == 7, "nothing, three buttons, three pairs"
    group.close()
