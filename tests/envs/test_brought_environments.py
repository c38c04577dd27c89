"""What people bring: `check env` says what an actor would meet, and an actor does meet it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from seedbed.config import parse_experiment
from seedbed.config.environment import Actor, Environment
from seedbed.envs import make_vector_env
from seedbed.envs.check import check_environment
from seedbed.envs.check_report import Report
from seedbed.envs.gymnasium_env import GymnasiumVectorEnv
from seedbed.envs.probe import EnvironmentProbe
from seedbed.packed import random_actions
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from tests.support import brought_environments as brought
from tests.support.processes import parent
from tests.support.waiting import wait_for

MODULE = brought.__name__


def environment(name: str, **kwargs: Any) -> Environment:
    return Environment(id=f"{MODULE}:{name}", kwargs=kwargs)


def check(name: str, **kwargs: Any) -> Report:
    return check_environment(environment(name), 2, 0.01, **kwargs)


def play(env: Any, steps: int = 25) -> None:
    random = np.random.default_rng(0)
    time_step = env.reset()
    for _ in range(steps):
        time_step = env.step(random_actions(env.spec, time_step.observation, random))


def as_an_actor(name: str, num_envs: int = 2, workers: int = 0, **kwargs: Any) -> str:
    """Make and step a group in a thread; return the refusal, "" if there is none."""
    said = [""]

    def run() -> None:
        try:
            env = make_vector_env(
                environment(name, **kwargs), num_envs, 1, range(num_envs), 1, workers
            )
            try:
                play(env)
            finally:
                env.close()
        except SeedbedError as error:
            said[0] = f"{error.code.name}: {error}"

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return said[0]


def failures(report: Report) -> str:
    return "\n".join(c.detail for c in report.checks if c.result == "failed")


def warned(report: Report) -> str:
    return "\n".join(c.detail for c in report.checks if c.result == "warning")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ExitsInStep", r"it ended its process \(SystemExit: None\)"),
        ("ExitsInReset", r"it ended its process \(SystemExit: 0\)"),
        ("ExitsWhenMade", r"cannot be made: it ended its process \(SystemExit: no display\)"),
        ("InterruptsItself", "GeneratorExit"),
        ("SignalsItself", r"it sends SIGTERM to a process of Seedbed, by os.kill\("),
        ("SignalsItsGroup", r"it sends SIGINT to a process of Seedbed, by os.killpg\(0, 2\)"),
        ("Handler", "signal only works in main thread.*actor.workers=1"),
        ("RaisesKeyboardInterrupt", "KeyboardInterrupt$"),
        ("RaisesWithoutWords", "Mute without words"),
        ("SharesPygame", "as many actor.workers as actor.envs_per_group"),
        ("Nothing-v0", "brought_environments registers no such id"),
        ("Alone", "the port 5005 is in use"),
        ("Wide", "an observation holds 256 of uint16, which uint8 cannot hold"),
        ("Negative", "holds -1 of int8, which uint8 cannot hold"),
        ("NotABit", "the entry observation holds 2"),
        ("Large", r"an observation holds 1e\+39 of float64, which float32 cannot hold"),
        ("Clock", "holds 16777217 of int64, which float32 cannot hold"),
        ("Outside", "the entry card is 52, which is none of the 52 values"),
        ("RewardOfShape2", "the reward is list .*, not a single number"),
        ("RewardIsNone", "the reward is NoneType None, not a single number"),
        ("RewardIsMasked", "the reward is .* with masked numbers, not a single number"),
        ("ObservationIsMasked", r"an observation is float32\[2\] with masked numbers"),
        ("Bright", "an observation holds 200, and its space is 0 to 1: correct one of them"),
        ("DoneIsText", "terminated is str 'False', not true or false"),
        ("Unbounded", r"has no bounds to scale to: .*gymnasium.wrappers.TransformAction"),
        ("AllOfFloat64", r"has no bounds to scale to: .*TransformAction"),
        ("WithoutSpaces", "it has no observation_space: NotImplementedError: which size?"),
        ("SpacesOfOld", "its action_space is a builtins.slice, and no space of gymnasium.spaces"),
        ("TooManyKinds", r"the entry word is Discrete\(50000\), of more than 32768 categories"),
        ("ResetOfOld", r"reset returned float32\[2\], not \(observation, info\)"),
        ("StepOfOld", "step returned 4 values, not the five of Gymnasium"),
        ("InfoIsNone", "the info of reset is NoneType None, not a dictionary"),
        ("OtherSpacesEachTime", "all environments of a group must have the same spaces"),
    ],
)
def test_what_stops_an_actor_fails_the_check_in_the_same_words(name: str, words: str) -> None:
    said = as_an_actor(name)
    assert re.search(f"ENVIRONMENT: .*{words}", said), said
    report = check(name)
    assert not report.ok
    assert re.search(words, failures(report)), report.checks


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("RewardOfShape1", ""),
        ("DoneIsNumpy", ""),
        ("TrueOrFalse", ""),
        ("OddInfo", ""),
        ("LivesAreText", ""),
        ("ExitsInClose", ""),
        ("advised", ""),
        ("HardlyBounded", r"6\.81e\+38 apart, which is no bound: .*TransformAction"),
        ("Dark", r"the picture: 0\.00392 to 0\.00392 came in 50 steps .*: all dark"),
        ("StopsClocks", ""),
        ("DrawsNothing", "cannot be drawn: RuntimeError: no screen: a video fails"),
        ("ChannelsFirst", r"the picture is \[4, 84, 84\]: channels first\?"),
    ],
)
def test_what_stops_no_actor_passes_the_check(name: str, warning: str) -> None:
    assert as_an_actor(name) == ""
    report = check(name)
    assert report.ok, report.checks
    assert re.search(warning, warned(report)), report.checks


def test_one_end_of_the_process_fails_the_check() -> None:
    """Any other failure may be an accident of the network or a licence server."""
    said = failures(check("ExitsNowAndThen"))
    assert "an environment failed once and was made anew, at last: it ended its process" in said
    assert "gives up after 10 within ten minutes" in said


def test_numbers_that_the_learner_refuses_fail_the_check() -> None:
    assert "a reward of 1e+07: the learner refuses" in failures(check("TooMuch"))


def test_an_environment_for_the_main_thread_works_in_a_worker() -> None:
    """The advice works, and `check env` tries it."""
    assert as_an_actor("Handler", 1, workers=1) == ""
    assert check("Handler", actor=Actor(workers=1)).ok


def test_an_end_in_a_worker_is_named_as_in_one_process() -> None:
    said = [as_an_actor("ExitsInStep", 1, workers) for workers in (0, 1)]
    assert said[0] == said[1]


def test_gymnasiums_own_checker_speaks_in_lines_of_the_report(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    report = check("OddInfo")
    lines = [c for c in report.checks if c.name == "API"]
    assert lines
    assert all(c.result == "warning" for c in lines)
    assert not [c.detail for c in lines if "\x1b" in c.detail or "\n" in c.detail]
    assert not recwarn.list
    assert capsys.readouterr().err == ""


def test_info_is_the_environments_own_but_for_the_setting_that_reads_it() -> None:
    def group(name: str, needs_lives: bool) -> GymnasiumVectorEnv:
        return GymnasiumVectorEnv(environment(name), [0], max_failures=1, needs_lives=needs_lives)

    for name in ("OddInfo", "LivesAreText"):
        play(group(name, False))
        with pytest.raises(SeedbedError, match=r'info\["lives"\] is .*life_loss_ends'):
            play(group(name, True))
        assert not check(name, needs_lives=True).ok
    env = group("LivesOfNumpy", True)
    env.reset()
    lost = [bool(env.step(np.zeros(1, np.int32)).life_lost[0]) for _ in range(10)]
    assert np.flatnonzero(lost).tolist() == [4, 9]


def test_settings_are_those_of_the_file_in_every_process() -> None:
    text = (
        f"name: free\nenvironment:\n  id: {MODULE}:checked\n  kwargs: "
        "{level: 010, day: 2024-05-01, rates: {'1': 0.5}, on: yes, step: 1e-4}"
    )
    section = parse_experiment(text).environment
    assert check_environment(section, 1, 0.01).ok
    assert EnvironmentProbe(section).wait() is not None
    make_vector_env(section, 1, 1, [0], workers=1).close()


def test_a_mask_that_is_missing_is_named_whatever_else_info_holds() -> None:
    section = Environment(id=f"{MODULE}:LivesAndNumber", action_mask=True)
    with pytest.raises(SeedbedError, match=r"info has no 'action_mask'.*\['7', 'lives'\]"):
        GymnasiumVectorEnv(section, [0], max_failures=1).reset()


def test_a_module_that_ends_the_process_while_it_loads_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SeedbedError, match="importing 'leaves_at_once' failed: it ended its proc"):
        make_vector_env(Environment(id="leaves_at_once:make"), 1, 1, [0])


# --- frames ----------------------------------------------------------------------------------


class FrameSkip(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Repeats each action, and says so in an attribute of some name."""

    def __init__(self, env: Any, name: str, times: Any) -> None:
        super().__init__(env)
        setattr(self, name, times)


class OfOwn(gymnasium.Wrapper[Any, Any, Any, Any]):
    action_repeat = 5


class Simulates(brought.Plain):
    """Its `frame_skip` counts substeps of its physics, as MuJoCo's does."""

    frame_skip = 20


@pytest.mark.parametrize(
    ("make", "frames"),
    [
        (brought.Plain, 1),
        (Simulates, 1),
        (lambda: FrameSkip(brought.Plain(), "frame_skip", 4), 4),
        (lambda: FrameSkip(brought.Plain(), "_skip", 3), 3),
        (lambda: FrameSkip(brought.Plain(), "frameskip", np.int64(2)), 2),
        (lambda: FrameSkip(FrameSkip(brought.Plain(), "_skip", 2), "_frame_skip", 3), 6),
        (lambda: OfOwn(FrameSkip(brought.Plain(), "_skip", 2)), 5),
        (lambda: FrameSkip(OfOwn(brought.Plain()), "_skip", 2), 10),
        (lambda: gymnasium.make("ale_py:ALE/Pong-v5"), 4),
        (lambda: gymnasium.make("ale_py:ALE/Pong-v5", frameskip=2), 2),
        (lambda: gymnasium.make("ale_py:PongNoFrameskip-v4"), 1),
        (lambda: FrameSkip(gymnasium.make("ale_py:PongNoFrameskip-v4"), "frame_skip", 4), 4),
        (lambda: FrameSkip(brought.Plain(), "_repeat", 3), 3),
        (lambda: FrameSkip(brought.Plain(), "skip", True), 1),
        (lambda: FrameSkip(brought.Plain(), "frame_skip", (2, 5)), "frame_skip is (2, 5)"),
        (lambda: FrameSkip(brought.Plain(), "_skip", 0), "_skip is 0"),
        (lambda: gymnasium.make("ale_py:Pong-v4"), "_frameskip is (2, 5)"),
    ],
)
def test_frames_are_those_of_the_emulator(
    make: Callable[[], Any], frames: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brought, "made", make, raising=False)
    if isinstance(frames, int):
        assert make_vector_env(environment("made"), 1, 1, [0]).spec.action_repeat == frames
        return
    with pytest.raises(SeedbedError, match=re.escape(frames)) as refused:
        make_vector_env(environment("made"), 1, 1, [0])
    assert "set the environment's attribute action_repeat" in str(refused.value)


@pytest.mark.parametrize(
    ("env_id", "advice"),
    [
        ("ALE/Pong-v5", "`atari:Pong`.*`ale_py:ALE/Pong-v5`"),
        ("PongNoFrameskip-v4", "`atari:Pong`.*`ale_py:PongNoFrameskip-v4`"),
        ("BreakoutDeterministic-v4", "`atari:Breakout`"),
        ("ALE/MontezumaRevenge-v5", "`atari:MontezumaRevenge`"),
        ("MiniGrid-Empty-5x5-v0", "`minigrid:MiniGrid-Empty-5x5-v0`"),
    ],
)
def test_an_id_of_another_package_is_answered_with_one_that_works(
    env_id: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(gymnasium.registry, env_id, raising=False)  # another test has imported it
    with pytest.raises(SeedbedError, match=advice):
        make_vector_env(Environment(id=env_id), 1, 1, [0])


# --- video -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nothing", "NoneType None"),
        ("floats", r"float64\[64, 64, 3\]"),
        ("a list", "list "),
        ("gray", r"uint8\[64, 64\]"),
        ("rgba", r"uint8\[64, 64, 4\]"),
        ("empty", r"uint8\[0, 64, 3\]"),
        ("text", "str 'a picture'"),
        ("exits", r"it ended its process \(SystemExit: 0\)"),
    ],
)
def test_what_is_no_picture_is_named(what: str, words: str) -> None:
    env = GymnasiumVectorEnv(environment("Renders", what=what), [0])
    env.reset()
    with pytest.raises(SeedbedError, match=f"Renders cannot be drawn: .*{words}") as refused:
        env.rgb(0)
    assert refused.value.code == ExitCode.ENVIRONMENT
    assert GymnasiumVectorEnv(environment("Renders"), [0]).rgb(0).shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("fps", "rate"),
    [(12, 12.0), (None, 30.0), ("fast", 30.0), (0, 30.0), ("nan", 30.0), ("none", 30.0)],
)
def test_a_video_has_a_rate_whatever_the_metadata_holds(fps: Any, rate: float) -> None:
    assert GymnasiumVectorEnv(environment("Renders", fps=fps), [0]).frames_per_second == rate


# --- processes -------------------------------------------------------------------------------


def test_a_process_that_an_environment_starts_holds_up_no_probe(tmp_path: Path) -> None:
    file = tmp_path / "simulator"
    probe = EnvironmentProbe(environment("Starts", file=str(file)))
    assert probe.wait() is not None
    simulator = int(file.read_text())
    wait_for(lambda: not parent(simulator), "it is gone", 60)
