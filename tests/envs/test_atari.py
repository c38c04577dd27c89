"""Both Atari groups: the rows of the wire, Table 9, and where the two must agree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any, Literal

import ale_py
import numpy as np
import pytest
from ale_py import roms

from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.atari_exact import ExactAtariVectorEnv
from seedbed.envs.atari_games import rom_name
from seedbed.envs.resize import BilinearResize
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import TimeStep, VectorEnv
from tests.support.vector_env_compliance import VectorEnvCompliance

ROOT = Path(__file__).parents[2]


def pong(preprocessing: str = "fast", **atari: Any) -> Environment:
    return playing("Pong", preprocessing, **atari)


def playing(name: str, preprocessing: str, **atari: Any) -> Environment:
    tree = {"id": f"atari:{name}", "atari": {**atari, "preprocessing": preprocessing}}
    return Environment.model_validate(tree)


class TestFast(VectorEnvCompliance):
    """Breakout: random play loses its five lives in 170 steps or more, and the limit is 180."""

    steps = 190
    preprocessing: Literal["fast", "exact"] = "fast"

    def make(self, seeds: Sequence[int]) -> VectorEnv:
        breakout = playing("Breakout", self.preprocessing, max_frames_per_episode=720)
        return make_vector_env(breakout, len(seeds), 1, seeds)

    def test_lives_are_lost_one_by_one_and_the_game_ends_with_the_last(
        self, rows: list[TimeStep]
    ) -> None:
        lost = np.stack([frame.life_lost for frame in rows])  # [T, E]
        over = np.stack([frame.terminated for frame in rows])
        cut = np.stack([frame.truncated for frame in rows])
        assert over.any()
        assert cut.any()
        for i in np.flatnonzero(over.any(axis=0)):
            end = int(np.flatnonzero(over[:, i])[0])
            assert lost[: end + 1, i].sum() == 5
            assert lost[end, i]


class TestExact(TestFast):
    preprocessing = "exact"


def test_a_new_episode_with_fewer_lives_is_no_lost_life() -> None:
    """A game may give lives; an episode cut short then ends with more than the next begins with."""
    group: Any = make_vector_env(pong(max_frames_per_episode=4), 1, 1, [1])
    group.reset()
    assert group.step(np.zeros(1, np.int32)).truncated.all()
    group._lives = group._lives + 9
    frame = group.step(np.zeros(1, np.int32))
    group.close()
    assert frame.first.all()
    assert not frame.life_lost.any()


def test_threads_change_nothing() -> None:
    groups = [make_vector_env(pong(), 3, threads, [1, 2, 3]) for threads in (1, 2)]
    rows = [group.reset() for group in groups]
    random = np.random.default_rng(0)
    for _ in range(50):
        for a, b in zip(*rows, strict=True):
            np.testing.assert_array_equal(a, b)
        action = random.integers(0, 18, 3).astype(np.int32)
        rows = [group.step(action) for group in groups]
    for group in groups:
        group.close()


@pytest.mark.parametrize("preprocessing", ["fast", "exact"])
def test_a_time_limit_truncates_after_its_frames(preprocessing: str) -> None:
    group = make_vector_env(
        pong(preprocessing=preprocessing, max_frames_per_episode=42), 2, 1, [1, 2]
    )
    group.reset()
    ends = []
    for _ in range(24):
        frame = group.step(np.zeros(2, np.int32))
        assert not frame.terminated.any()
        ends.append(bool(frame.truncated.all()))
    group.close()
    # 42 frames are 11 steps (the last one cut short); the 12th row is the next episode's first.
    assert np.flatnonzero(ends).tolist() == [10, 22]


@pytest.mark.parametrize("preprocessing", ["fast", "exact"])
def test_defaults_are_table_9(preprocessing: str) -> None:
    group = make_vector_env(pong(preprocessing=preprocessing), 1, 1, [1])
    assert group.spec.observation.shape == (84, 84, 1)
    assert group.spec.actions == 18
    assert group.spec.action_repeat == 4
    group.close()
    group = make_vector_env(pong(preprocessing=preprocessing, full_action_space=False), 1, 1, [1])
    assert group.spec.actions == 6
    group.close()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
def test_both_ways_agree_where_they_must(game: str) -> None:
    """No no-ops and no resizing: then every row is the same, bit for bit.

    But for the observation of a finished row, where the library keeps the screen before, and for
    nothing else. Rewards over 1 (SpaceInvaders) show that nothing is clipped.
    """
    common: dict[str, Any] = {"noop_max": 0, "height": 210, "width": 160}
    groups = [
        make_vector_env(playing(game, preprocessing, **common), 2, 2, [7, 8])
        for preprocessing in ("fast", "exact")
    ]
    rows = [group.reset() for group in groups]
    random = np.random.default_rng(3)
    reward = 0.0
    for _ in range(250):
        fast, exact = rows
        running = ~(exact.terminated | exact.truncated)
        np.testing.assert_array_equal(fast.observation[running], exact.observation[running])
        for a, b in zip(fast[1:], exact[1:], strict=True):
            np.testing.assert_array_equal(a, b)
        reward += float(np.abs(exact.reward).sum())
        action = random.integers(0, 18, 2).astype(np.int32)
        rows = [group.step(action) for group in groups]
    for group in groups:
        group.close()
    assert reward > 0


def test_the_pictures_differ_by_the_way_of_resizing_only() -> None:
    """Area and bilinear are close on average, and not the same."""
    groups = [
        make_vector_env(pong(preprocessing=t, noop_max=0), 1, 1, [5]) for t in ("fast", "exact")
    ]
    pictures = [group.reset().observation.astype(float) for group in groups]
    for group in groups:
        group.close()
    gap = np.abs(pictures[0] - pictures[1])
    assert 0 < gap.mean() < 8


def slow_bilinear(image: Any, height: int, width: int) -> Any:
    """By the definition: one pixel, four neighbours at a time, in exact arithmetic."""
    rows, columns = image.shape
    out = np.zeros((height, width), np.uint8)
    for y in range(height):
        for x in range(width):
            v = Fraction(2 * y + 1, 2) * Fraction(rows, height) - Fraction(1, 2)
            u = Fraction(2 * x + 1, 2) * Fraction(columns, width) - Fraction(1, 2)
            v = min(max(v, Fraction(0)), Fraction(rows - 1))
            u = min(max(u, Fraction(0)), Fraction(columns - 1))
            y0, x0 = floor(v), floor(u)
            y1, x1 = min(y0 + 1, rows - 1), min(x0 + 1, columns - 1)
            b, a = v - y0, u - x0
            value = (1 - b) * ((1 - a) * int(image[y0, x0]) + a * int(image[y0, x1]))
            value += b * ((1 - a) * int(image[y1, x0]) + a * int(image[y1, x1]))
            out[y, x] = floor(value + Fraction(1, 2))
    return out


@pytest.mark.parametrize(
    ("source", "target"), [((210, 160), (84, 84)), ((9, 7), (20, 3)), ((5, 6), (5, 6))]
)
def test_resizing_is_bilinear(source: tuple[int, int], target: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, source, np.uint8)
    got = BilinearResize(source, target)(image)
    want = slow_bilinear(image, *target)
    assert got.dtype == np.uint8
    # float32 may round an exact half the other way, on a few pixels.
    assert np.abs(got.astype(int) - want).max() <= 1
    assert (got != want).mean() < 0.005


def test_exact_follows_the_table_frame_by_frame() -> None:
    """Against one emulator driven by hand, from the no-ops on."""
    seed = 3
    group = ExactAtariVectorEnv(pong(), [seed])
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", seed)
    ale.loadROM(str(roms.get_rom_path("pong")))
    ale.reset_game()
    noops = int(np.random.default_rng(seed).integers(1, 31))
    for _ in range(noops):
        ale.act(0)
    frame = group.reset()
    resize = BilinearResize((210, 160), (84, 84))  # has its own test above
    np.testing.assert_array_equal(
        frame.observation[0, ..., 0], resize(np.array(ale.getScreenGrayscale()))
    )
    random = np.random.default_rng(0)
    for _ in range(60):
        action = int(random.integers(18))
        reward, screens = 0, []
        for _ in range(4):
            reward += ale.act(action)
            screens.append(np.array(ale.getScreenGrayscale()))
        frame = group.step(np.array([action], np.int32))
        assert frame.reward[0] == reward
        pooled = np.maximum(screens[2], screens[3])
        np.testing.assert_array_equal(frame.observation[0, ..., 0], resize(pooled))
        np.testing.assert_array_equal(group.rgb(0), ale.getScreenRGB())
    group.close()


def test_exact_draws_no_ops_from_one_to_noop_max() -> None:
    """The frame number after reset is the number of no-ops; each of 1 .. 3 comes up."""
    group = ExactAtariVectorEnv(pong(noop_max=3), [0])
    game: Any = group._games[0]
    seen = set()
    for _ in range(40):
        game.reset()
        seen.add(game._ale.getEpisodeFrameNumber())
    group.close()
    assert seen == {1, 2, 3}


def test_fast_draws_no_ops_from_none_to_noop_max() -> None:
    group: Any = make_vector_env(pong(noop_max=1), 5, 1, range(5))
    _, info = group._games.reset(seed=np.arange(5))
    group.close()
    assert set(info["episode_frame_number"].tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("name", "rom"),
    [
        ("MontezumaRevenge", "montezuma_revenge"),
        ("montezuma_revenge", "montezuma_revenge"),
        ("Qbert", "qbert"),
        ("UpNDown", "up_n_down"),
        ("TicTacToe3D", "tic_tac_toe_3d"),
    ],
)
def test_game_names(name: str, rom: str) -> None:
    assert rom_name(f"atari:{name}") == rom


@pytest.mark.parametrize("preprocessing", ["fast", "exact"])
def test_a_game_that_is_not_there_is_named_with_the_nearest(preprocessing: str) -> None:
    environment = playing("Pongg", preprocessing)
    with pytest.raises(SeedbedError, match=r"'atari:Pongg'.*did you mean pong"):
        make_vector_env(environment, 1, 1, [0])


def test_the_wrong_number_of_seeds_is_refused() -> None:
    with pytest.raises(ValueError, match="3 seeds for 2 environments"):
        make_vector_env(pong(), 2, 1, [1, 2, 3])


def test_close_stops_the_threads() -> None:
    """In a process of its own: threads of other tests come and go."""
    code = (
        "import threading, time\n"
        "from pathlib import Path\n"
        "from seedbed.config.schema import Environment\n"
        "from seedbed.envs import make_vector_env\n"
        "def native_threads() -> int:\n"
        "    return len(list(Path('/proc/self/task').iterdir()))\n"
        "pong = Environment(id='atari:Pong')\n"
        "make_vector_env(pong, 1, 1, [0]).close()  # whatever the first one starts for good\n"
        "before = None\n"
        "while before != native_threads():  # its other threads end in their own time\n"
        "    before = native_threads()\n"
        "    time.sleep(0.3)\n"
        "python_before = threading.active_count()\n"
        "env = make_vector_env(pong, 2, 2, [0, 1])\n"
        "env.reset()\n"
        "assert native_threads() >= before + 3\n"
        "env.close()\n"
        "deadline = time.monotonic() + 10\n"
        "while native_threads() > before and time.monotonic() < deadline:\n"
        "    time.sleep(0.01)\n"
        "assert native_threads() <= before\n"
        "assert threading.active_count() == python_before\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.slow
def test_a_hanging_library_ends_the_process_with_a_number_and_a_line() -> None:
    """The real hang: an action out of range, past our own check, kills the library's worker."""
    code = (
        "import numpy as np\n"
        "from seedbed.envs import atari\n"
        "from seedbed.config.environment import Environment\n"
        "atari.check_actions = lambda *_: None\n"
        "pong = Environment(id='atari:Pong')\n"
        "group = atari.FastAtariVectorEnv(pong, 1, [0, 1], timeout_s=4)\n"
        "group.reset()\n"
        "group.step(np.array([0, 99], np.int32))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == ExitCode.ENVIRONMENT
    assert "seedbed: step of all environments of atari:Pong has not come back" in done.stderr
    assert "(actor.environment_timeout_s is 4)" in done.stderr


def test_environments_import_no_learner() -> None:
    code = (
        "import sys\n"
        "from seedbed.envs import make_vector_env\n"
        "from seedbed.config.environment import Environment\n"
        "import seedbed.envs.check, seedbed.cli.check_env\n"
        "for name in ('atari:Pong', 'CartPole-v1'):\n"
        "    for preprocessing in ('fast', 'exact'):\n"
        "        make_vector_env(Environment(id=name, atari={'preprocessing': preprocessing}), 1, "
        "1, [0]).reset()\n"
        "heavy = {'tensorflow', 'keras', 'jax', 'cv2'} & {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
