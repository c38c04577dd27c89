"""One part of `seedbed bench --quick`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.source_imports import ROOT


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def check_series(figures: dict[str, Any], runs: int = 1) -> None:
    assert len(figures["values"]) == runs
    assert 0 < figures["min"] <= figures["median"] <= figures["max"]


def quick(part: str, folder: Path) -> dict[str, Any]:
    """Measure `part`; what must be true of every part is; gives its results."""
    file = folder / "bench.json"
    answer = bench(part, "--quick", "--json", str(file))
    assert answer.returncode == 0, answer.stderr
    results: dict[str, Any] = json.loads(file.read_text())
    assert results["machine"]["cores"] > 0
    assert results["machine"]["gemm_gflops"] > 0
    assert results["command"].startswith("seedbed bench")
    assert set(results["revision"]) == {"commit", "changed"}
    again = bench("--markdown", str(file))
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() in answer.stderr, "the table of the run, again from its JSON"
    return results
