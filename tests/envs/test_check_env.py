"""`seedbed check env`: what it finds, what it advises, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from seedbed.cli.main import main
from seedbed.config.environment import Environment
from seedbed.envs.advice import Advice, advise
from seedbed.envs.check import check_environment
from seedbed.envs.check_report import Report
from seedbed.runtime.exit_codes import ExitCode
from tests.support import toy_environments


def check(name: str, **kwargs: Any) -> Report:
    return check_environment(
        Environment(id=f"tests.support.toy_environments:{name}", kwargs=kwargs), 2, 0.05
    )


def results(report: Report) -> dict[str, str]:
    return {check.name: check.result for check in report.checks}


def test_a_sound_environment_passes() -> None:
    report = check("Counter")
    assert report.ok
    assert results(report)["seeds"] == "ok"
    assert results(report)["rows"] == "ok"
    assert results(report)["episodes"] == "ok"
    assert "other seeds" not in results(report)
    assert report.speed["steps_per_second"] > 0
    # 2 rows of 4 float32, 2 rewards, 2 flags, and less than 40 bytes of protobuf
    assert 2 * (16 + 4 + 1) < report.speed["message_bytes"] < 2 * (16 + 4 + 1) + 40
    assert report.advice is not None


def test_runs_that_cannot_be_repeated_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Box(0, 1, (3,))  # Spaced samples from its space, which has no seed
    made = [toy_environments.Spaced(space, Discrete(2)) for _ in range(1)]
    monkeypatch.setattr(toy_environments, "made", lambda: made[0], raising=False)
    report = check("made")
    assert report.ok
    assert results(report)["seeds"] == "warning"
    assert results(report)["episodes"] == "warning"  # none ever ends


def test_seeds_that_change_nothing_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    class Same(toy_environments.Counter):
        def _see(self, action: int) -> Any:
            return np.array([self.episode, self.t, 0, action], np.float64)

    monkeypatch.setattr(toy_environments, "Same", Same, raising=False)
    assert results(check("Same"))["other seeds"] == "warning"


def test_a_picture_that_never_changes_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    class Still(toy_environments.Counter):
        def _see(self, action: int) -> Any:
            return np.zeros(4)

    monkeypatch.setattr(toy_environments, "Still", Still, raising=False)
    assert results(check("Still"))["observations"] == "warning"
    assert "observations" not in results(check("Counter"))


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_numbers_beyond_the_bounds_fail_as_the_learner_refuses_them(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Large(toy_environments.Counter):
        def step(self, action: int) -> Any:
            observation, reward, *rest = super().step(action)
            if field == "reward":
                return observation, 5e6, *rest
            return np.full(4, -5e6), reward, *rest

    monkeypatch.setattr(toy_environments, "Large", Large, raising=False)
    report = check("Large")
    assert results(report)["bounds"] == "failed"
    (detail,) = (check.detail for check in report.checks if check.name == "bounds")
    assert f"a {field} of 5e+06" in detail
    assert f"environment.max_abs_{field}" in detail
    assert "bounds" not in results(check("Counter"))


def test_failures_are_a_warning() -> None:
    toy_environments.Faulty.made.clear()
    report = check("Faulty", fault="fourth one raises")
    assert report.ok
    assert results(report)["failures"] == "warning"


@pytest.mark.parametrize("fault", ["raise", "shape"])
def test_an_environment_that_never_works_fails(fault: str) -> None:
    report = check("Faulty", fault=fault)
    assert not report.ok
    assert report.checks[-1].name == "step"
    assert report.checks[-1].result == "failed"


def test_the_command_ends_with_a_code_and_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "env", "tests.support.toy_environments:Counter", "--num-envs", "3"]
    code = main(
        [*command, "--seconds", "0.05", "--set", "environment.kwargs={length: 5}", "--json"]
    )
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert code == ExitCode.OK
    assert report["ok"]
    assert report["spec"]["observation"] == {"shape": [4], "dtype": "float32"}
    assert report["advice"]["environments"] >= 1
    assert "to be fast  actor: {groups:" in printed.err


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("preprocessing", "lines"),
    [
        (
            "fast",
            [
                r"preprocessing is fast, .*by area, not bilinearly.* 0 to noop_max .*not 1",
                r"frame_skip is 2, and 4 in Table 9",
            ],
        ),
        ("exact", [r"frame_skip is 2, and 4 in Table 9"]),
    ],
)
def test_departures_from_table_9_are_named(
    preprocessing: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"{{preprocessing: {preprocessing}, frame_skip: 2}}"
    command = ["check", "env", "atari:Pong", "--set", f"environment.atari={settings}"]
    assert main([*command, "--num-envs", "1", "--seconds", "0.05", "--json"]) == ExitCode.OK
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = [check["detail"] for check in checks if check["name"] == "Table 9"]
    assert len(found) == len(lines)
    for line, pattern in zip(found, lines, strict=True):
        assert re.search(pattern, line), line


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["atari:Pongg"], ExitCode.ENVIRONMENT, "did you mean pong"),
        (["CartPole-v1", "--num-envs", "0"], ExitCode.USAGE, "--num-envs 0"),
        (["CartPole-v1", "--set", "environment.kwargs=3"], ExitCode.CONFIG, "environment.kwargs"),
        (["CartPole-v1", "--set", "environment.kwargs={"], ExitCode.CONFIG, "not YAML"),
        (
            ["atari:Pong", "--set", "environment.atari.preprocessing=both"],
            ExitCode.CONFIG,
            "environment.atari.preprocessing",
        ),
    ],
)
def test_what_is_wrong_is_named(
    arguments: list[str], code: ExitCode, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "env", *arguments]) == code
    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.out == ""


def advice_for(step_s: float, cpu_s: float | None = None, speedup: float | None = None) -> Advice:
    return advise(step_s, cpu_s or step_s, speedup, memory_bytes=2**20)


def test_advice_for_an_atari_core_is_the_schemas_default() -> None:
    advice = advice_for(1 / 4000, speedup=1.9)
    assert (advice.groups, advice.environments, advice.threads) == (2, 32, 1)
    assert advice.steps_per_second == pytest.approx(4000, rel=0.05)


def test_advice_for_a_slow_simulator_is_few_environments() -> None:
    assert advice_for(1 / 240).environments == 2  # a message is 2.4 % of 8 ms
    assert advice_for(2.0).environments == 1  # a step alone takes longer than we like


def test_advice_for_a_very_fast_one_is_bounded() -> None:
    assert advice_for(1e-6).environments == 256


def test_advice_for_one_that_waits_is_more_groups() -> None:
    advice = advice_for(step_s=10e-3, cpu_s=2.5e-3)
    assert advice.groups == 5
    assert advice.steps_per_second == pytest.approx(1 / 2.5e-3, rel=0.05)
    # Eight groups at most, so here the waiting is the limit: 8 steps each 100 ms.
    assert advice_for(step_s=0.1, cpu_s=1e-3).steps_per_second == pytest.approx(80)


def test_a_step_that_hangs_is_named_with_what_was_found_before(tmp_path: Path) -> None:
    module = tmp_path / "hanging.py"
    module.write_text(
        "import threading\n"
        "from tests.support.toy_environments import Counter\n"
        "class Hangs(Counter):\n"
        "    def step(self, action):\n"
        "        if self.t == 2:\n"
        "            threading.Event().wait()\n"
        "        return super().step(action)\n"
    )
    command = [sys.executable, "-m", "seedbed.cli.main", "check", "env", "hanging:Hangs"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, "--timeout", "0.5"], capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
    )  # fmt: skip
    assert done.returncode == ExitCode.ENVIRONMENT
    assert "step of environment 0 of hanging:Hangs has not come back for 0." in done.stderr
    assert "(actor.environment_timeout_s is 0.5)" in done.stderr
    assert "spaces" in done.stderr


def test_an_environment_that_always_raises_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(toy_environments.Counter):
        def step(self, action: int) -> Any:
            raise RuntimeError("boom")

    monkeypatch.setattr(toy_environments, "Raises", Raises, raising=False)
    report = check("Raises")
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    failed = next(check for check in report.checks if check.result == "failed")
    assert failed.detail.endswith("the last one: RuntimeError: boom")
