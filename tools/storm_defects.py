"""Put known defects back one at a time, and tell after how many seconds the storm finds each.

`python -m tools.storm_defects` copies the commit that is checked out, makes the changes of a defect
of `tools/storm_defects.yaml` in the copy, and runs `tests.storm` there until it says a problem.
A change whose text is not in the tree any more ends with an error. `none` has no change.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.storm.problems import SAID

ROOT = Path(__file__).parents[1]
END_S = 120.0  # longest wait for a storm that was told to end


class Defect(NamedTuple):
    """A defect that is known.

    Attributes:
        name: what is wrong with it.
        changes: path, text that is there once, and what takes its place.
        runs: of the storm; none: all.
    """

    name: str
    changes: list[list[str]]
    runs: list[str]


class Found(NamedTuple):
    """What the storm says about one defect.

    Attributes:
        name: of the defect.
        seconds: from the start of the storm to its first problem; None where it has said none.
        words: of that problem, or of the end.
    """

    name: str
    seconds: float | None
    words: str


@contextlib.contextmanager
def copied_tree() -> Iterator[Path]:
    """Copy the files of the commit that is checked out."""
    with tempfile.TemporaryDirectory(prefix="defect-") as name:
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        subprocess.run(["tar", "-x"], cwd=name, input=archive, check=True)
        yield Path(name)


def put_back(defect: Defect, tree: Path) -> None:
    """Change the lines of a defect.

    Raises:
        ValueError: A text is not in its file exactly once.
    """
    for path, old, new in defect.changes:
        text = (tree / path).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{defect.name}: {path} has {text.count(old)} times {old!r}, not once")
        (tree / path).write_text(text.replace(old, new))


def find(defect: Defect, minutes: float, seed: int) -> Found:
    """Run the storm on a tree with a defect, until it says a problem."""
    with copied_tree() as tree:
        put_back(defect, tree)
        words = ["-m", "tests.storm", "--seed", str(seed), "--minutes", f"{minutes}"]
        runs = ["--runs", *defect.runs] if defect.runs else []
        began = time.monotonic()
        storm = subprocess.Popen(
            [sys.executable, *words, *runs],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        timer = threading.Timer(60 * minutes + END_S, storm.send_signal, [signal.SIGTERM])
        timer.start()
        try:
            return _first_problem(defect.name, storm, began)
        finally:
            timer.cancel()
            _end(storm)


def _first_problem(name: str, storm: subprocess.Popen[str], began: float) -> Found:
    assert storm.stderr is not None
    last = ""
    for line in storm.stderr:
        if SAID in line:
            return Found(name, time.monotonic() - began, line.split(" s: ", 1)[1].strip())
        last = line.strip() or last
    code = storm.wait()
    # The storm itself fails where a run does not even start.
    return Found(name, time.monotonic() - began if code == 1 else None, last)


def _end(storm: subprocess.Popen[str]) -> None:
    """End a storm and, by it, the processes of its runs."""
    storm.terminate()
    try:
        storm.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        storm.kill()
        storm.wait()


def main() -> int:
    read = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    known = {
        name: Defect(name, one.get("changes", []), one.get("runs", []))
        for name, one in read.items()
    }
    parser = argparse.ArgumentParser(prog="tools.storm_defects", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of each storm (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of each storm")
    parser.add_argument("--defects", nargs="+", choices=list(known), default=list(known))
    args = parser.parse_args()
    print("| defect | caught after, s | by |\n| --- | --- | --- |", flush=True)
    missed = 0
    for name in args.defects:
        found = find(known[name], args.minutes, args.seed)
        missed += (found.seconds is None) == bool(known[name].changes)
        seconds = "not caught" if found.seconds is None else f"{found.seconds:.0f}"
        print(f"| {name} | {seconds} | {found.words[:120]} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
