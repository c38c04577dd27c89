"""Where the JSON object of a result goes: to a program, and not into a log for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import argparse, sys
from seedbed.cli.output import print_result
from seedbed.runtime.streams import keep_stdout
if "keep" in sys.argv:
    keep_stdout()
print("words", file=sys.stderr)
print_result(argparse.Namespace(json="--json" in sys.argv), {"updates": 3})
"""
RESULT = '{"updates": 3}\n'


@pytest.mark.parametrize("keep", ["keep", "as it is"])
def test_a_program_gets_the_object_and_a_log_the_words_alone(keep: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, keep]
    apart = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (apart.stdout, apart.stderr) == (RESULT, "words\n")
    with (tmp_path / "ci.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
        subprocess.run([*command, "--json"], stdout=log, stderr=subprocess.STDOUT, check=True)
    assert (tmp_path / "ci.log").read_text() == "words\nwords\n" + RESULT
    piped = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    assert piped.stdout == "words\n"
