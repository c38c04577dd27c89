"""`seedbed suite run` with real games: Ctrl-C, kill -9, and on to the end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from seedbed.runs.suite import Member, read_suite
from seedbed.runtime.exit_codes import ExitCode
from tests.support.processes import START_S, Process, children, parent
from tests.support.waiting import wait_for

SMALL = """
name: small
environment: {id: atari:Pong, atari: {full_action_space: false}}
actor: {processes: 1, envs_per_group: 2, connect_timeout_s: 60}
learner:
  network: nature
  frame_stack: 1
  unroll_length: 8
  batch_size: 4
  checkpoint: {every_s: 0.5}
evaluation: {episodes: 1, num_envs: 1}
logging: {interval_s: 0.1}
stop: {env_frames: 4000}
"""
GAMES = "Pong,Breakout"


def frames(member: Member) -> int:
    """Frames of the newest checkpoint; 0 without one."""
    try:
        status = json.loads((member.run / "status.json").read_text())
    except FileNotFoundError:
        return 0
    found = list((member.run / "checkpoints").glob("checkpoint-*.safetensors"))
    return int(status["counters"]["env_frames"]) if found else 0


@pytest.mark.slow
def test_a_suite_goes_on_after_ctrl_c_and_kill_9(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "suite"
    source.write_text(SMALL)
    words = ("suite", "prepare", "atari57", "--experiment", str(source), "--games", GAMES)
    # Long enough to be ended in the middle.
    out = ("--out", str(folder), "--set", "stop.env_frames=10000000")
    made = Process(tmp_path / "a", *words, *out)
    assert made.wait() == 0, made.said
    first, second = read_suite(folder)
    run = ("suite", "run", str(folder))

    started = Process(tmp_path / "b", *run)
    wait_for(lambda: started.runs() or frames(first), f"a checkpoint: {started.said}", START_S)
    again = Process(tmp_path / "c", *run)
    assert again.wait() == ExitCode.RUN_DIRECTORY
    assert "is in use by process" in again.said
    started.send(signal.SIGINT)
    assert started.wait() == 0, started.said
    assert "small-breakout-1: stopped" in started.said
    assert "0 of 2 runs are finished" in started.said
    assert second.name not in started.said, "no other run begins after the signal"
    # The run was told once: it has ended by itself, with its last frames.
    log = first.log.read_text()
    assert "ended by signal SIGTERM" in log, log
    saved = frames(first)

    both = Process(tmp_path / "d", *run, "--parallel", "2")
    wait_for(lambda: both.runs() or frames(second), f"a checkpoint: {both.said}", START_S)
    wait_for(lambda: both.runs() or frames(first) > saved, f"more: {both.said}", START_S)
    assert "small-breakout-1: resumes (1 of 2)" in both.said
    trains = children(both.pid)
    assert len(trains) == 2
    both.send(signal.SIGKILL)
    both.wait()
    wait_for(lambda: not any(map(parent, trains)), "the runs end with the suite")

    for member in (first, second):  # lower, so that each ends soon after it goes on
        text = member.file.read_text().replace("10000000", str(frames(member) + 2000))
        member.file.write_text(text)
    last = Process(tmp_path / "e", *run, "--parallel", "2")
    assert last.wait() == 0, last.said
    assert sorted(last.summary()["finished"]) == ["small-breakout-1", "small-pong-1"]
    for member in (first, second):
        assert f"{member.name}: finished, mean return" in last.said
        assert "resumes at" in member.log.read_text()

    table = Process(tmp_path / "f", "suite", "table", str(folder), "--json")
    assert table.wait() == 0
    found = json.loads((tmp_path / "f" / "stdout").read_text())
    ours = {row["game"]: row["ours"] for row in found["games"] if row["ours"]}
    assert set(ours) == {"Breakout", "Pong"}
    assert -21 <= ours["Pong"]["mean"] <= 21
    assert ours["Pong"]["env_frames"] >= frames(second)
