"""DeepMind Lab over a package with its API: rows, actions, refusals, the level cache."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.config import parse_experiment
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.lab import ACTIONS, DMLAB_30, OTHERS, level_path
from seedbed.envs.level_cache import LevelCache
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import VectorEnv
from tests.support.lab import LEVEL, fake_lab, lab
from tests.support.vector_env_compliance import VectorEnvCompliance

# A pixel of the stand-in holds the action that led there, modulo 256.
TOLD = [tuple(int(x) % 256 for x in row) for row in ACTIONS]


@pytest.fixture(scope="module", autouse=True)
def package() -> Iterator[Any]:
    with fake_lab() as found:
        yield found


def make(environment: Environment, environments: int = 1, **more: Any) -> VectorEnv:
    return make_vector_env(environment, environments, 1, range(environments), **more)


class TestLab(VectorEnvCompliance):
    def make(self, seeds: Sequence[int]) -> VectorEnv:
        return make_vector_env(lab(), len(seeds), 1, seeds)


def test_a_step_is_four_frames_of_one_of_the_nine_actions(package: Any) -> None:
    env = make(lab(level="rooms_watermaze"))
    made = package.Lab.made[-1]
    assert str(env.spec.observation) == "uint8[72, 96, 3]"
    assert (env.spec.actions, env.spec.action_repeat) == (9, 4)
    assert made.level == "contributed/dmlab30/rooms_watermaze"
    assert (made.renderer, made.cache) == ("software", None)
    env.reset()
    for action in range(5):
        row = env.step(np.array([action], np.int32))
        assert tuple(row.observation[0, 0, 1:8, 0]) == TOLD[action]
        assert row.observation[0, 0, 0, 0] == 4 * (action + 1)
    assert len(set(TOLD)) == 9


def test_the_end_repeats_the_last_picture_and_is_a_termination(package: Any) -> None:
    """Lab answers nothing after the end. Its last step may have fewer frames, and counts all."""
    env = make(lab())
    rows = [env.reset()]
    while not rows[-1].terminated[0]:
        assert len(rows) < 20, "no end"
        rows.append(env.step(np.zeros(1, np.int32)))
    assert (rows[-1].observation == rows[-2].observation).all()
    frames = 4 * (len(rows) - 1)
    made = package.Lab.made[-1]
    assert not any(row.truncated[0] for row in rows)
    assert made.num_steps() == frames
    assert made._frame <= frames
    total = sum(float(row.reward[0]) for row in rows)
    n = made._frame
    assert total == pytest.approx(0.25 * n + 0.01 * n * (n + 1) / 2, rel=1e-5)


def test_every_episode_has_a_seed_that_follows_from_the_environments(package: Any) -> None:
    """Without one, Lab takes the same seeds in all processes of a second."""
    seeds = []
    for _ in range(2):
        env = make(lab(), 2)
        env.reset()
        for _ in range(40):
            env.step(np.zeros(2, np.int32))
        env.close()
        seeds.append([made.seeds for made in package.Lab.made[-2:]])
    assert seeds[0] == seeds[1]
    (ours, others) = seeds[0]
    assert len(ours) >= 3
    assert len({*ours, *others}) == len(ours) + len(others)
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in ours + others)


def test_settings_reach_lab_as_text(package: Any) -> None:
    env = make(lab(height=48, width=64, action_repeat=2, renderer="hardware", config={"fps": "30"}))
    made = package.Lab.made[-1]
    assert made.config == {"height": "48", "width": "64", "fps": "30"}
    assert made.renderer == "hardware"
    assert str(env.spec.observation) == "uint8[48, 64, 3]"
    assert env.spec.action_repeat == 2
    assert env.reset().observation.shape == (1, 48, 64, 3)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("lab: {config: {fps: 60}}", r"environment\.lab\.config\.fps: must be a text"),
        ("lab: {config: {width: '96'}}", r"width is a setting of its own: environment\.lab\.width"),
        ("lab: {width: 0}", r"environment\.lab\.width: must be at least 1"),
        ("lab: {renderer: vulkan}", r"environment\.lab\.renderer.*'software' or 'hardware'"),
        ("kwargs: {render_mode: human}", r"kwargs \['render_mode'\] has no effect.*lab"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_starts(section: str, said: str) -> None:
    with pytest.raises(SeedbedError, match=said) as refused:
        parse_experiment(f"name: x\nenvironment:\n  id: lab:{LEVEL}\n  {section}")
    assert refused.value.code == ExitCode.CONFIG


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("explore_goal_location_small", "did you mean lab:explore_goal_locations_small"),
        ("nothing_like_it", "there are lab:|there are explore_goal_locations_large, .*melon, and "),
        ("../../etc/level", "no level below Lab's own folder"),
        ("/etc/level", "no level below Lab's own folder"),
        ("", "no level below Lab's own folder"),
    ],
)
def test_a_wrong_level_is_refused_with_what_there_is(level: str, said: str) -> None:
    with pytest.raises(SeedbedError, match=said) as refused:
        make(lab(level))
    assert refused.value.code == ExitCode.ENVIRONMENT


def test_levels_go_by_their_names_and_others_by_their_paths() -> None:
    assert len(DMLAB_30) == len(set(DMLAB_30)) == 32  # two levels have a test of their own
    assert level_path("lab:seekavoid_arena_01") == "seekavoid_arena_01"
    assert level_path("lab:tests/empty_room_test") == "tests/empty_room_test"
    assert not set(DMLAB_30) & set(OTHERS)
    make(lab("tests/empty_room_test")).close()


def test_without_the_package_the_command_that_builds_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "deepmind_lab", None)
    with pytest.raises(SeedbedError, match=r"build its wheel with Bazel.*first-person\.md") as told:
        make(lab())
    assert told.value.code == ExitCode.ENVIRONMENT


def test_an_environment_that_fails_alone_is_made_anew(package: Any) -> None:
    env = make(lab(), 2)
    env.reset()
    package.Lab.made[-1].close()  # every call to it raises now
    row = env.step(np.zeros(2, np.int32))
    assert row.first.tolist() == [False, True]
    assert env.failures == {"step_raised": 1}
    assert not package.Lab.made[-3].closed
    assert env.step(np.zeros(2, np.int32)).first.tolist() == [False, False]


def test_workers_hold_the_interpreter_lock_each_for_itself() -> None:
    """Lab holds it in `step`; the rows are those of one process."""
    one, other = make(lab(), 4), make(lab(), 4, workers=2)
    rows = [(one.reset(), other.reset())]
    for k in range(12):
        action = np.full(4, k % 9, np.int32)
        rows.append((one.step(action), other.step(action)))
    one.close()
    other.close()
    for ours, theirs in rows:
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_maps_are_compiled_once_for_all(tmp_path: Path, package: Any) -> None:
    seeds = {"level_cache": str(tmp_path), "episode_seeds": 3}
    env = make(lab(**seeds), 2)
    env.reset()
    for _ in range(120):
        env.step(np.zeros(2, np.int32))
    first = package.Lab.made[-2:]
    assert sum(len(made.seeds) for made in first) > 12
    assert sum(made.compiled for made in first) == len(list(tmp_path.iterdir())) <= 3
    again = make(lab(**seeds), 2)  # another actor, later
    again.reset()
    assert [made.compiled for made in package.Lab.made[-2:]] == [0, 0]


def test_a_cache_without_its_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeedbedError, match=r"level_cache .*no folder: make it, mount") as refused:
        make(lab(level_cache=str(tmp_path / "volume")))
    assert refused.value.code == ExitCode.CONFIG


@pytest.mark.parametrize("key", ["../map", "/etc/map", "a/b", "", ".", "..", ".tmp-map", "a\0b"])
def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "map").write_text("outside")
    cache = LevelCache(tmp_path / "cache")
    pk3 = tmp_path / "pk3"
    pk3.write_text("mine")
    for call in (cache.fetch, cache.write):
        with pytest.raises(ValueError, match="no name of a file"):
            call(key, str(pk3))
    assert (tmp_path / "map").read_text() == "outside"
    assert pk3.read_text() == "mine"


def test_many_writers_of_one_map_leave_it_whole(tmp_path: Path) -> None:
    """The map is large, so that a copy in place would be seen half done."""
    folder = tmp_path / "cache"
    folder.mkdir()
    pk3 = tmp_path / "pk3"
    content = os.urandom(1 << 20) * 8
    pk3.write_bytes(content)
    begin, wrong = threading.Barrier(7), []

    def write() -> None:
        cache = LevelCache(folder)
        begin.wait(60)
        cache.write("map_noaas_1", str(pk3))

    def read(k: int) -> None:
        cache, copy = LevelCache(folder), tmp_path / f"copy{k}"
        begin.wait(60)
        while not cache.fetch("map_noaas_1", str(copy)):
            assert any(thread.is_alive() for thread in writers) or (folder / "map_noaas_1").exists()
        wrong.extend([k] * (copy.read_bytes() != content))

    writers = [threading.Thread(target=write) for _ in range(4)]
    threads = [*writers, *(threading.Thread(target=read, args=(k,)) for k in range(3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert [path.name for path in folder.iterdir()] == ["map_noaas_1"]
    assert (folder / "map_noaas_1").stat().st_mode & 0o777 == 0o644


def test_a_cache_that_fails_costs_no_episode(
    tmp_path: Path, package: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume that is full, or gone: maps are compiled, and the log says so once."""
    env = make(lab(level_cache=str(tmp_path)))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seedbed.envs.level_cache.tempfile.mkstemp", full)
    with caplog.at_level(logging.WARNING):
        env.reset()
        for _ in range(30):
            env.step(np.zeros(1, np.int32))
    made = package.Lab.made[-1]
    assert made.compiled == len(made.seeds) > 2
    assert not env.failures
    assert caplog.text.count("cannot be written, so that maps are compiled again") == 1


def test_temporaries_of_processes_that_were_killed_go(tmp_path: Path) -> None:
    old, new = tmp_path / ".tmp-map-a", tmp_path / ".tmp-map-b"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    LevelCache(tmp_path)
    assert not old.exists()
    assert new.exists(), "another process may write it now"
