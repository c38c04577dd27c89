"""Google Research Football: by its own package, and by envpool's copy of the engine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from seedbed import make_env
from seedbed.config import parse_experiment
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.football import make as make_match
from seedbed.evaluation.video import _rendered
from seedbed.packed import PackedSpec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import TimeStep, VectorEnv
from tests.support.vector_env_compliance import VectorEnvCompliance

HARD = "football:11_vs_11_hard_stochastic"
CLOSE = "football:academy_empty_goal_close"
SIZES = {"96x72": (72, 96), "120x90": (90, 120), "144x108": (108, 144)}
RIGHT, SHOT = 5, 12


def environment(name: str = CLOSE, **football: Any) -> Environment:
    return Environment(id=name, football=football)


def make(name: str, seeds: Sequence[int], **football: Any) -> VectorEnv:
    return make_vector_env(environment(name, **football), len(seeds), 1, seeds)


@pytest.fixture(scope="session")
def engine() -> None:
    """Google Research Football, or the command that installs it; before all other fixtures."""
    pytest.importorskip("gfootball_engine", reason="no gfootball: `make football` builds it")


def maps(group: VectorEnv, time_step: TimeStep) -> np.ndarray:
    """The maps [E, height, width, 4] bool of a step."""
    spec = group.spec.observation
    assert isinstance(spec, PackedSpec)
    return spec.unpack(time_step.observation)["observation"]


@pytest.mark.usefixtures("engine")
class TestAcademy(VectorEnvCompliance):
    steps = 90

    def make(self, seeds: Sequence[int]) -> VectorEnv:
        return make(CLOSE, seeds, rewards="scoring,checkpoints")


@pytest.mark.usefixtures("engine")
class TestAcademyInWorkers(VectorEnvCompliance):
    steps = 90

    def make(self, seeds: Sequence[int]) -> VectorEnv:
        return make_vector_env(environment(), len(seeds), 1, seeds, workers=2)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("smm", SIZES)
def test_a_map_is_that_of_the_package_in_an_eighth_of_its_bytes(smm: str) -> None:
    from gfootball.env import create_environment

    group = make(CLOSE, [3], smm=smm, rewards="scoring,checkpoints")
    size = SIZES[smm]
    assert group.spec.actions == 19
    assert group.spec.action_repeat == 1
    assert group.spec.observation.shape == (size[0] * size[1] * 4 // 8,)
    engine_seed = int(np.random.default_rng(3).integers(2**31 - 1))
    official = create_environment(
        env_name="academy_empty_goal_close",
        rewards="scoring,checkpoints",
        channel_dimensions=size[::-1],
        other_config_options={
            "game_engine_random_seed": engine_seed,
            "reverse_team_processing": bool(engine_seed % 2),
        },
    )
    actions = np.random.default_rng(0).choice([RIGHT, RIGHT, 0, SHOT], 60)
    seen, ours = official.reset(), group.reset()
    rewards = []
    for action in actions:
        np.testing.assert_array_equal(maps(group, ours)[0], seen != 0)
        seen, reward, done, _ = official.step(int(action))
        ours = group.step(np.array([action], np.int32))
        assert ours.reward[0] == pytest.approx(reward)
        assert (ours.terminated[0], ours.truncated[0]) == (done, False)
        rewards.append(float(reward))
        if done:
            break
    np.testing.assert_array_equal(maps(group, ours)[0], seen != 0)
    assert max(rewards) > 0, "no checkpoint was reached"
    group.close()
    official.close()


def score(rewards: str, seed: int = 1) -> list[float]:
    """Rewards of a run to the goal and a shot, until the episode ends."""
    group = make(CLOSE, [seed], rewards=rewards)
    group.reset()
    found = []
    for step in range(120):
        action = SHOT if step == 8 else RIGHT
        time_step = group.step(np.array([action], np.int32))
        found.append(round(float(time_step.reward[0]), 4))
        if time_step.terminated[0] or time_step.truncated[0]:
            break
    group.close()
    return found


@pytest.mark.usefixtures("engine")
def test_checkpoints_come_on_top_of_the_goal() -> None:
    scoring, checkpoints = score("scoring"), score("scoring,checkpoints")
    assert set(scoring) == {0.0, 1.0}
    assert sum(scoring) == 1
    assert sum(checkpoints) == pytest.approx(2.0), "the goal, and ten of 0.1"
    assert len(scoring) == len(checkpoints), "rewards change no match"


@pytest.mark.usefixtures("engine")
def test_a_match_ends_by_time_as_terminated() -> None:
    """An idle player: the scenario's 400 steps, and the row after is the next match's first."""
    group = make("football:academy_pass_and_shoot_with_keeper", [5])
    group.reset()
    idle, steps = np.zeros(1, np.int32), 0
    while True:
        time_step = group.step(idle)
        steps += 1
        if time_step.terminated[0] or time_step.truncated[0]:
            break
    assert (steps, time_step.terminated[0], time_step.truncated[0]) == (401, True, False)
    after = group.step(idle)
    assert after.first[0]
    assert not after.terminated[0]
    group.close()


@pytest.mark.usefixtures("engine")
def test_a_seed_begins_the_same_match_again_and_no_seed_the_next_one() -> None:
    """Side of the kick-off, engine seed and order of the teams."""
    match = make_match(environment(HARD))

    def play(seed: int | None) -> tuple[int, np.ndarray]:
        begun, info = match.reset(seed=seed)
        maps = [begun, *(match.step(RIGHT)[0] for _ in range(10))]
        return info["engine_seed"], np.stack(maps)

    played = [play(4), play(None), play(5), play(4), play(None)]
    match.close()
    seeds = [seed for seed, _ in played]
    assert seeds[0] == seeds[3]
    assert seeds[1] == seeds[4]
    assert len(set(seeds)) == 3
    assert len({seed % 2 for seed in seeds}) == 2, "both orders of the teams"
    np.testing.assert_array_equal(played[0][1], played[3][1])
    np.testing.assert_array_equal(played[1][1], played[4][1])
    assert (played[0][1][0] != played[1][1][0]).any(), "the sides alternate"


@pytest.mark.usefixtures("engine")
def test_groups_in_threads_play_as_one_after_the_other() -> None:
    """The actor steps its groups side by side, and the engine lets go of the interpreter lock."""

    def play(seed: int, rows: list[np.ndarray]) -> None:
        group = make(HARD, [seed, seed + 1])
        random = np.random.default_rng(seed)
        rows.append(group.reset().observation)
        actions = random.integers(0, 19, (25, 2)).astype(np.int32)
        rows.extend(group.step(action).observation for action in actions)
        group.close()

    alone: list[list[np.ndarray]] = [[], []]
    together: list[list[np.ndarray]] = [[], []]
    for k in (0, 1):
        play(10 * k, alone[k])
    threads = [threading.Thread(target=play, args=(10 * k, together[k])) for k in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    np.testing.assert_array_equal(alone, together)
    assert not np.array_equal(alone[0], alone[1])


@pytest.mark.usefixtures("engine")
def test_a_video_has_the_players_on_grass() -> None:
    """The pictures need no setting, and `environment.kwargs` would be refused."""
    config = parse_experiment(f"name: x\nenvironment: {{id: '{HARD}'}}\nactor: {{workers: 1}}")
    group: Any = make_vector_env(_rendered(config).environment, 1, 1, [0])
    group.reset()
    assert group.frames_per_second == 10
    picture = group.rgb(0)
    assert picture.shape == (72, 96, 3)
    colours = {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}
    assert len(colours) == 5, "grass, two teams, the ball and the active player"
    group.close()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("football:academy_empty_goal_cloze", "did you mean academy_empty_goal_close"),
        ("football:", "it has 11_vs_11_"),
        ("football:nothing_like_it_at_all", "it has 11_vs_11_"),
    ],
)
def test_a_wrong_scenario_is_refused_with_those_there_are(name: str, words: str) -> None:
    with pytest.raises(SeedbedError) as error:
        make(name, [0])
    assert error.value.code == ExitCode.ENVIRONMENT
    assert words in str(error.value)


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gfootball_engine", None)
    with pytest.raises(SeedbedError, match="`make football`") as error:
        make(CLOSE, [0])
    assert error.value.code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"football": {"smm": "72x96"}}, "'96x72', '120x90' or '144x108'"),
        ({"football": {"rewards": "checkpoints"}}, "'scoring' or 'scoring,checkpoints'"),
        (
            {"kwargs": {"render_mode": "human"}},
            r"kwargs \['render_mode'\] has no effect .*environment.football",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_those_there_are(settings: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Environment(id=CLOSE, **settings)


@pytest.mark.usefixtures("engine")
def test_a_library_user_makes_it_by_its_name() -> None:
    group = make_env(CLOSE, num_envs=2, football={"smm": "120x90"})
    assert maps(group, group.reset()).shape == (2, 90, 120, 4)
    group.close()


ORACLE = """
import sys
import envpool
import numpy as np
seed, actions = int(sys.argv[1]), [int(a) for a in sys.argv[3].split(",")]
env = envpool.make_gymnasium("gfootball/11_vs_11_hard_stochastic-v1", num_envs=1, seed=seed)
begun, info = env.reset()
maps, rewards = [begun], []
for action in actions:
    seen, reward, *_ = env.step(np.array([action], np.int32))
    maps.append(seen)
    rewards.append(reward)
seeds = info["engine_seed"]
np.savez(sys.argv[2], maps=np.concatenate(maps), rewards=np.concatenate(rewards), seeds=seeds)
"""


@pytest.mark.usefixtures("engine")
def test_envpools_engine_plays_the_same_match(tmp_path: Path) -> None:
    """Two builds of one engine: the same seed and actions, the same maps.

    An engine built with -O2, and not as its package says, parts at the 85th step of this match.
    """
    if importlib.util.find_spec("envpool") is None:
        pytest.skip("no envpool: `pip install 'seedbed[football-oracle]'` installs it (1 GB)")
    actions = np.random.default_rng(4).integers(0, 19, 300)
    given = ",".join(map(str, actions))
    file = tmp_path / "oracle.npz"
    # A process of its own: both builds have the same symbols.
    command = [sys.executable, "-c", ORACLE, "7", str(file), given]
    subprocess.run(command, check=True, timeout=300)
    oracle = np.load(file)
    match = make_match(environment(HARD))
    engine_seed = int(oracle["seeds"][0])
    assert engine_seed % 2 == 0, "envpool processes the left team first, whatever the seed"
    seen = [match.reset(options={"engine_seed": engine_seed})[0]]
    rewards = []
    for action in actions:
        observation, reward, *_ = match.step(action)
        seen.append(observation)
        rewards.append(reward)
    match.close()
    np.testing.assert_array_equal(np.stack(seen), oracle["maps"] != 0)
    np.testing.assert_array_equal(rewards, oracle["rewards"])
