"""The `seedbed` command as a shell sees it."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from seedbed.cli.main import COMMANDS, EXAMPLES, main


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as after `| head`
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "config", "schema"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_command_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "trian"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "did you mean `seedbed train`?" in done.stderr


@pytest.mark.parametrize("words", [["--", "train"], ["--", "train", "x"]])
def test_a_command_after_two_dashes_is_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_version_and_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("seedbed 0.")
    assert main([]) == 2
    overview = capsys.readouterr().err
    for name, text in COMMANDS.items():
        assert f"{name} " in overview
        assert text in overview


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, Counter[str]]]:
    """Return the help texts of a command's options, and of each of its sub-commands'."""
    yield (
        parser.prog,
        Counter(a.help for a in parser._actions if a.help and a.help != argparse.SUPPRESS),
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from helps(part)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_has_a_help_text_of_its_own(name: str) -> None:
    module = "bench.main" if name == "bench" else f"seedbed.cli.{name}"
    parser = argparse.ArgumentParser(prog=name)
    importlib.import_module(module).add_arguments(parser)
    for command, texts in helps(parser):
        assert [text for text, count in texts.items() if count > 1] == [], command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_each_command_is_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    first, *words = EXAMPLES[name].split()
    assert first == name
    parser = argparse.ArgumentParser()
    module = importlib.import_module("bench.main" if name == "bench" else f"seedbed.cli.{name}")
    module.add_arguments(parser)
    if words != ["--help"]:
        parser.parse_args(words)
    with pytest.raises(SystemExit):
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert f"seedbed {EXAMPLES[name]}" in shown
    assert " ".join(str(module.__doc__).split()[:6]) in " ".join(shown.split())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("seedbed tra", "train"),
        ("seedbed train --run", "--run-dir"),
        ("seedbed train pong-v", "pong-vtrace"),
        ("seedbed check mach", "machine"),
    ],
)
def test_bash_completes(words: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    given = words.split()
    call = f"COMP_WORDS=({words}); COMP_CWORD={len(given) - 1}; _seedbed; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", f"{script}\n{call}"], capture_output=True, text=True)
    assert wanted in done.stdout.split(), done.stderr


def test_an_ascii_terminal_shows_what_it_can() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "config", "reference"],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"? 0" in done.stdout
