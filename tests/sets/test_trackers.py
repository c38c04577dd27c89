"""Weights & Biases in a set: its group, and a service that hangs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.sets.test_driver import SMALL
from tests.support.processes import Process

# The package as it is imported: the first call never returns.
HANGS = """
import json, threading
def init(**settings):
    open({file!r}, "a").write(json.dumps(settings) + "\\n")
    threading.Event().wait()
"""


@pytest.mark.slow
def test_a_tracker_that_hangs_neither_delays_nor_ends_a_run_of_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder, told = tmp_path / "small.yaml", tmp_path / "set", tmp_path / "told"
    source.write_text(SMALL)
    (tmp_path / "wandb.py").write_text(HANGS.format(file=str(told)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = Process(
        tmp_path / "a", "sweep", str(source), "--out", str(folder), "--name", "rates",
        "--set", "logging.wandb.enabled=true", "--set", "evaluation.at_end=false",
    )  # fmt: skip
    assert process.wait() == 0, process.said
    (name,) = process.summary()["finished"]
    run = folder / "runs" / name
    summary, status = (
        json.loads((run / file).read_text()) for file in ("summary.json", "status.json")
    )
    assert summary["env_frames"] >= 4000
    (settings,) = map(json.loads, told.read_text().splitlines())
    assert settings["group"] == "rates"
    assert settings["name"] == name
    assert settings["id"] == (run / "wandb-run-id").read_text().strip()
    assert settings["config"]["learner"]["batch_size"] == 4
    warnings = [line for line in (folder / f"runs/{name}.log").read_text().splitlines()
                if "cannot write wandb" in line]  # fmt: skip
    assert len(warnings) == 1, "one warning a run"
    # Whichever is over first: the wait at the end, or for an answer in a run that takes longer.
    assert re.search(r"no end within 6 s|no answer for \d+ s", warnings[0])
    # The last status is written before the end of the tracker is waited for.
    assert time.time() - status["time"] < 30
