"""The result is stdout, and stdout is the result's, whatever a user's code does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SEEDBED = f"{sys.executable} -m seedbed"
ENVIRONMENT = '''
import os, sys
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Loud(CartPoleEnv):
    """Prints, from Python, from C and from a process, and goes to another folder."""

    def __init__(self):
        super().__init__()
        os.chdir("/")

    def reset(self, **options):
        print("loading level 1")
        os.write(1, b"from C\\n")
        os.system("echo from a process")
        return super().reset(**options)
'''

TAKES = """

class Replaces(CartPoleEnv):
    def __init__(self):
        super().__init__()
        sys.stdout = sys.stderr = open(os.devnull, "w")

class Redirects(CartPoleEnv):
    def __init__(self):
        super().__init__()
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)

class Closes(CartPoleEnv):
    def __init__(self):
        super().__init__()
        os.closerange(0, 3)
"""


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(tmp_path: Path, closed: str) -> None:
    done = shell(f"{SEEDBED} config show cartpole-vtrace {closed}", tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert shell(f"{SEEDBED} evaluate missing {closed}", tmp_path).returncode == 21


def test_what_an_environment_prints_goes_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(ENVIRONMENT)
    done = shell(f"{SEEDBED} check env loud:Loud --num-envs 1 --seconds 0.05 --json", tmp_path)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    for text in ("loading level 1", "from C", "from a process"):
        assert text in done.stderr


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["Replaces", "Redirects", "Closes"])
def test_an_environment_cannot_take_the_streams_away(tmp_path: Path, name: str) -> None:
    (tmp_path / "loud.py").write_text(ENVIRONMENT + TAKES)
    done = shell(f"{SEEDBED} check env loud:{name} --num-envs 2 --seconds 0.05 --json", tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["ok"]
    assert "to be fast" in done.stderr


def test_a_path_is_of_the_folder_in_which_the_command_was_started(tmp_path: Path) -> None:
    program = (
        "from seedbed.runtime.paths import *; import os; started_here(); os.chdir('/');"
        "print(absolute('film.mp4'), shown('film.mp4'), shown('/elsewhere/film.mp4'))"
    )
    done = shell(f'{sys.executable} -c "{program}"', tmp_path)
    assert done.stdout.split() == [f"{tmp_path}/film.mp4", "film.mp4", "/elsewhere/film.mp4"]
