"""Try splits of a learner's devices on virtual CPU devices, and print a table of what was seen.

    python tools/splits.py [SPLIT ...] [--out FILE.md]

A split is INFERENCE+TRAINING, such as 1+3, or `shared`: one device acts and trains. Of each, the
master invariant must hold over the wire, and CartPole must be learned.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SPLITS = ("shared", "1+1", "1+3", "2+6", "3+5")
INVARIANT = "tests/services/learner/test_master_invariant.py"
CASE = "test_training_computes_what_acting_computed[nature-lstm-stack]"
LEARNED = 200  # mean return of CartPole; a random policy has 22
BATCH = 16
_LIMIT_S = 900


class Found(NamedTuple):
    """What was seen of a split."""

    invariant: bool
    mean_return: float
    env_frames: int
    updates: int
    seconds: float

    @property
    def passes(self) -> bool:
        """Whether the invariant held, and CartPole was learned."""
        return self.invariant and self.mean_return >= LEARNED


def settings_of(split: str) -> list[str]:
    """Return the settings of a split, with a batch that its training devices can divide."""
    if split == "shared":
        return ["learner.backend=jax", "learner.device=cpu"]
    acting, training = map(int, split.split("+"))
    return [
        "learner.backend=jax",
        "learner.device=cpu",
        f"learner.devices={{inference: {acting}, training: {training}}}",
        f"learner.batch_size={-(-BATCH // training) * training}",
    ]


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )


def holds(split: str) -> bool:
    """Return whether training computes what acting computed, over the wire."""
    devices = "" if split == "shared" else split
    done = _run(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"{INVARIANT}::{CASE}"],
        {"SEEDBED_TEST_BACKEND": "jax", "SEEDBED_TEST_DEVICES": devices},
    )
    if done.returncode:
        print(done.stdout[-3000:], file=sys.stderr)
    return done.returncode == 0


def learn(split: str, run: Path) -> dict[str, float]:
    """Train CartPole, and return the summary of the run."""
    settings = [*settings_of(split), f"stop.mean_return={LEARNED}", "stop.env_frames=400_000"]
    done = _run(
        [
            "-m", "seedbed.cli.main", "train", "experiments/cartpole-vtrace.yaml",
            "--run-dir", str(run), *(word for one in settings for word in ("--set", one)),
        ],
        {},
    )  # fmt: skip
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        return {}
    summary: dict[str, float] = json.loads((run / "summary.json").read_text())
    return summary


def measure(split: str) -> Found:
    """Try one split."""
    invariant = holds(split)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        summary = learn(split, Path(folder) / "run")
        seconds = time.perf_counter() - started
    mean = float(summary.get("mean_return") or 0.0)
    return Found(
        invariant, mean, int(summary.get("env_frames", 0)), int(summary.get("updates", 0)), seconds
    )


def table(found: dict[str, Found]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| inference + training | master invariant | mean return | frames | updates | s |",
        "|---|---|---|---|---|---|",
    ]
    for split, one in found.items():
        held = "holds" if one.invariant else "**broken**"
        lines.append(
            f"| {split} | {held} | {one.mean_return:.0f} | {one.env_frames:,} | {one.updates:,} "
            f"| {one.seconds:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Try the splits that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("splits", nargs="*", default=SPLITS, metavar="SPLIT")
    parser.add_argument("--out", type=Path, help="file of the table, besides stdout")
    arguments = parser.parse_args()
    found = {}
    for split in arguments.splits:
        found[split] = measure(split)
        if arguments.out:
            arguments.out.write_text(table(found))
    print(table(found), end="")
    return 0 if all(one.passes for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
