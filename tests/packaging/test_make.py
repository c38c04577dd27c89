"""`make test` reports the failures of both backends; `make` takes a Python that runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.parts import PARTS, left_out
from tests.support.source_imports import ROOT


@pytest.mark.parametrize("target", ["test", "test-slow", "test-learning"])
@pytest.mark.parametrize("failing", ["tensorflow", "jax", "none"])
def test_both_backends_are_tested_and_either_fails_the_target(
    target: str, failing: str, tmp_path: Path
) -> None:
    done, backends = make(tmp_path, target, failing)
    assert [name for name, _ in backends] == ["tensorflow", "jax"]
    assert (done.returncode == 0) == (failing == "none"), done.stderr


def make(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """Run a target with a runner of tests that fails on a backend; return what it was started with:
    backends and parts.
    """
    target, failing, *variables = words
    runner, started = folder / "pytest", folder / "started"
    runner.write_text(
        f'#!/bin/sh\necho "$SEEDBED_TEST_BACKEND ${{SEEDBED_TEST_PART-none}}" >> {started}\n'
        f'[ "$SEEDBED_TEST_BACKEND" != {failing} ]\n'
    )
    runner.chmod(0o755)
    command = ["make", "--silent", "--old-file=.venv/.installed-dev", target, f"PYTEST={runner}"]
    done = subprocess.run(
        [*command, *variables], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return done, [line.split() for line in started.read_text().splitlines()]


def test_a_part_of_the_slow_tests_runs_and_is_named(tmp_path: Path) -> None:
    done, started = make(tmp_path, "test-slow", "none")
    (part,) = {part for _, part in started}
    assert part in "01234"
    assert f"part {part} of 0 to 4" in done.stdout
    (tmp_path / "started").unlink()
    _, started = make(tmp_path, "test-slow", "none", "PART=all")
    assert {part for _, part in started} == {"all"}


def test_the_parts_are_all_slow_tests_once() -> None:
    tests = list(range(23))
    run = [[test for test in tests if test not in left_out(tests, str(p))] for p in range(PARTS)]
    assert sorted(test for part in run for test in part) == tests
    assert {len(part) for part in run} == {4, 5}
    assert left_out(tests, "all") == []
    for wrong in ("5", "-1", "abc", ""):
        with pytest.raises(pytest.UsageError, match="0 to 4, or all"):
            left_out(tests, wrong)


def find_python(folder: Path, *arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run tools/find_python.sh where these programs, shell scripts, come first on PATH."""
    for name, script in programs.items():
        program = folder / name.replace("_", ".")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    command = [str(ROOT / "tools" / "find_python.sh"), *arguments]
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(command, env=path, capture_output=True, text=True, timeout=60)


SHIM = "echo 'pyenv: command not found' >&2; exit 127"  # of a version that is not chosen
NO_VENV = '[ "$2" != "import ensurepip, venv" ] && echo 3.11 /py/3.11'
HELD = """
if [ "$1" = versions ]; then echo 3.11.7-dev; echo 3.12.1; exit; fi
[ "$PYENV_VERSION" = 3.12.1 ] && echo 3.12 /held/3.12.1
"""


@pytest.mark.parametrize("broken", [SHIM, NO_VENV], ids=["a shim", "no venv"])
def test_a_python_that_does_not_do_is_passed_over(broken: str, tmp_path: Path) -> None:
    other = "echo 3.12 /py/3.12"
    assert find_python(tmp_path, python3_11=broken, python3_12=other).stdout == "/py/3.12\n"
    good = "echo 3.11 /py/3.11"
    assert find_python(tmp_path, python3_11=good, python3_12=other).stdout == "/py/3.11\n"


def test_a_version_that_pyenv_holds_is_found(tmp_path: Path) -> None:
    shim = "exec pyenv exec python3.12"
    done = find_python(tmp_path, "3.12", python3_12=shim, pyenv=HELD)
    assert done.stdout == "/held/3.12.1\n", done.stderr


def test_a_missing_python_is_named(tmp_path: Path) -> None:
    done = find_python(tmp_path, "3.13", python3_13=SHIM)
    assert done.returncode == 1
    assert done.stderr.startswith("Seedbed needs Python 3.13, and there is none here: ")
    for program, words in (
        ("python3.12", "'python3.12' is no Python that runs"),
        ("old", "'old' is 3.10"),
        ("nosuch", "there is no 'nosuch' here"),
    ):
        done = find_python(tmp_path, program, python3_12=SHIM, old="echo 3.10 /py/3.10")
        assert done.returncode == 1
        assert words in done.stderr
