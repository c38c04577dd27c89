"""`seedbed sweep` with real runs: Ctrl-C, kill -9, failures, and on to the end."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from seedbed.sets.folder import Member, read_members
from tests.support.processes import START_S, Process, children, guarded, parent
from tests.support.waiting import wait_for

SMALL = """
name: small
environment: {id: CartPole-v1}
agent: vtrace
actor: {processes: 1, envs_per_group: 2, connect_timeout_s: 60}
learner:
  network: mlp
  frame_stack: 1
  unroll_length: 8
  batch_size: 4
  checkpoint: {every_s: 0.5}
evaluation: {episodes: 1, num_envs: 1}
logging: {interval_s: 0.1}
stop: {env_frames: 4000}
"""
LR = "learner.optimizer.learning_rate"


def frames(member: Member) -> int:
    """Frames of the newest checkpoint; 0 without one."""
    status = member.status()
    found = list((member.run / "checkpoints").glob("checkpoint-*.safetensors"))
    return int(status["counters"]["env_frames"]) if status and found else 0


@pytest.mark.slow
def test_a_set_goes_on_after_ctrl_c_and_kill_9(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "set-of-two"
    source.write_text(SMALL)
    # Long enough to be ended in the middle.
    words = ("sweep", str(source), "--set", f"{LR}=1e-3,1e-2", "--out", str(folder))
    long = (*words, "--set", "stop.env_frames=100000000")
    made = Process(tmp_path / "a", *long, "--print")
    assert made.wait() == 0, made.said
    first, second = read_members(folder)

    started = Process(tmp_path / "b", *long)
    wait_for(lambda: started.runs() or frames(first), f"a checkpoint: {started.said}", START_S)
    again = Process(tmp_path / "c", "sweep", str(folder))
    assert again.wait() == ExitCode.RUN_DIRECTORY
    assert "is driven by process" in again.said
    started.send(signal.SIGINT)
    assert started.wait() == 0, started.said
    assert f"{first.name}: stopped" in started.said
    assert "0 of 2 runs finished, 2 to go on" in started.said
    assert f"{second.name}:" not in started.said, "no other run begins after the signal"
    # The run was told once: it has ended by itself, with its last frames.
    log = first.log.read_text()
    assert "ended by signal SIGTERM" in log, log
    saved = frames(first)

    # From the folder alone, elsewhere.
    folder = folder.rename(tmp_path / "moved")
    first, second = read_members(folder)
    both = Process(tmp_path / "d", "sweep", str(folder), "--parallel", "2")
    wait_for(lambda: both.runs() or frames(second), f"a checkpoint: {both.said}", START_S)
    wait_for(lambda: both.runs() or frames(first) > saved, f"more: {both.said}", START_S)
    assert f"{first.name}: resumes (1 of 2)" in both.said
    trains = children(both.pid)
    assert len(trains) == 2
    both.send(signal.SIGKILL)
    both.wait()
    wait_for(lambda: not any(map(parent, trains)), "the runs end with the set")

    end = max(frames(first), frames(second)) + 2000
    last = Process(tmp_path / "e", "sweep", str(folder), "--set", f"stop.env_frames={end}",
                   "--parallel", "2")  # fmt: skip
    assert last.wait() == 0, last.said
    assert sorted(last.summary()["finished"]) == sorted([first.name, second.name])
    for member in read_members(folder):
        assert f"{member.name}: finished, mean return" in last.said
        assert "resumes at" in member.log.read_text()
        assert member.summary()["env_frames"] >= end
    before = (first.run / "summary.json").read_bytes()
    assert Process(tmp_path / "f", "sweep", str(folder)).wait() == 0
    assert (first.run / "summary.json").read_bytes() == before, "a finished run is left as it is"


@pytest.mark.slow
def test_a_killed_run_resumes_and_a_stopped_one_stays_while_the_set_grows(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "set-of-one"
    source.write_text(SMALL)
    words = ("sweep", str(source), "--out", str(folder))
    long = (*words, "--set", "stop.env_frames=100000000")
    started = Process(tmp_path / "a", *long)
    index = folder / "set" / "runs.json"
    wait_for(lambda: started.runs() or index.exists(), f"a set: {started.said}", START_S)
    (first,) = read_members(folder)
    wait_for(lambda: started.runs() or frames(first), f"a checkpoint: {started.said}", START_S)
    (train,) = children(started.pid)
    os.kill(guarded(train), signal.SIGKILL)
    resumes = f"{first.name}: resumes"
    wait_for(lambda: started.runs() or resumes in started.said, "the run goes on", START_S)
    assert f"{first.name}: killed by signal 9" in started.said

    # Another shell adds a seed, with an earlier end, and stops the first run.
    added = Process(tmp_path / "b", *words, "--seeds", "2", "--print")
    assert added.wait() == 0, added.said
    saved = frames(first)
    wait_for(lambda: started.runs() or frames(first) > saved, "it trains", START_S)
    stopped = Process(tmp_path / "c", "stop", str(folder), first.name)
    assert stopped.wait() == 0, stopped.said
    assert "stops with a last checkpoint" in stopped.said
    assert started.wait() == 0, started.said
    _, second = read_members(folder)
    assert started.summary() == {
        "finished": [second.name], "failed": {}, "pruned": [], "stopped": [first.name],
        "waiting": 0, "runs": 2, "ended_by": None,
    }  # fmt: skip
    shown = Process(tmp_path / "d", "status", str(folder), "--json")
    assert shown.wait() == 0
    states = json.loads((tmp_path / "d" / "stdout").read_text())["states"]
    assert states == {"stopped by a person": 1, "finished": 1}

    again = Process(tmp_path / "e", *words, "--seeds", "2")
    assert again.wait() == 0, again.said
    assert f"{first.name}:" not in again.said, "what a person has stopped is not started again"
    end = frames(first) + 1000
    last = Process(tmp_path / "f", *words, "--retry", "stopped", "--set", f"stop.env_frames={end}")
    assert last.wait() == 0, last.said
    assert f"{first.name}: resumes" in last.said
    assert first.name in last.summary()["finished"]


@pytest.mark.slow
def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    text = "name: {}\nenvironment: {{id: {}}}\nstop: {{env_frames: 1000}}\n"
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, environment in (("done", "CartPole-v1"), ("one", "None-v1"), ("two", "None-v2")):
        (folder / f"{name}.yaml").write_text(text.format(name, environment))
    (done,) = (member for member in read_members(folder) if member.name == "done")
    done.run.mkdir(parents=True)
    (done.run / "experiment.yaml").write_text(done.file.read_text())
    summary = {"updates": 9, "evaluation": {"updates": 9}}
    (done.run / "summary.json").write_text(json.dumps(summary))
    process = Process(tmp_path / "a", "sweep", str(folder))
    assert process.wait() == ExitCode.SET_FAILED, process.said
    assert process.summary() == {
        "finished": ["done"], "failed": {"one": 11, "two": 11}, "pruned": [], "stopped": [],
        "waiting": 0, "runs": 3, "ended_by": None,
    }  # fmt: skip
    lines = process.said.splitlines()
    assert not any(line.startswith("done:") for line in lines), "a finished run is not started"
    assert any("one: failed with exit code 11 (ENVIRONMENT): seedbed: env" in one for one in lines)
    assert "2 of 3 runs failed: one: exit code 11" in process.last_lines()[0]
    assert "'None-v1'" in (folder / "runs/one.log").read_text()

    again = Process(tmp_path / "b", "sweep", str(folder))
    assert again.wait() == ExitCode.SET_FAILED
    assert "one: begins" not in again.said, "what has failed is not started again unasked"
    retried = Process(tmp_path / "c", "sweep", str(folder), "--retry", "failed")
    assert retried.wait() == ExitCode.SET_FAILED
    assert "one: begins" in retried.said
    assert "two: begins" in retried.said


@pytest.mark.slow
def test_failures_that_are_alike_stop_the_set(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "folder"
    source.write_text(SMALL.replace("CartPole-v1", "None-v1"))
    words = ("sweep", str(source), "--out", str(folder), "--seeds", "5")
    process = Process(tmp_path / "a", *words)
    assert process.wait() == ExitCode.SET_FAILED, process.said
    assert process.said.count(": begins (") == 3
    assert (
        "3 runs in a row ended with exit code 11 (ENVIRONMENT) for the same cause" in process.said
    )
    assert process.summary()["waiting"] == 5, "they wait: no run is at fault"
    again = Process(tmp_path / "b", "sweep", str(folder))
    assert again.wait() == ExitCode.SET_FAILED
    assert again.said.count(": begins (") == 3


def test_a_line_is_a_run_and_none_is_beyond_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "folder"
    source.write_text(SMALL)
    words = ["sweep", str(source), "--out", str(folder)]
    assert main([*words, "--seeds", "2", "--print"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [shlex.split(line)[3:5] for line in lines] == [
        ["train", str(folder / f"{member.name}.yaml")] for member in read_members(folder)
    ]
    assert main([*words, "--seeds", "3", "--set", f"{LR}=1e-3,1e-2", "--print"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == lines, "what is new comes last"
    assert main(["sweep", str(folder), "--line", "9"]) == ExitCode.USAGE
    assert "has 8 runs: nothing is started" in capsys.readouterr().err


@pytest.mark.slow
def test_a_bound_of_the_whole_set_holds_and_what_is_left_resumes(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "folder"
    # A machine that costs next to nothing, until a run has frames.
    prices = "cost: {cpu_hour: 1.0e-9, memory_gib_hour: 0, cpus: 1}\n"
    source.write_text(SMALL.replace("4000}", "100000000}") + prices)
    words = ("sweep", str(source), "--out", str(folder), "--seeds", "3")
    assert Process(tmp_path / "made", *words, "--print").wait() == 0
    first = read_members(folder)[0]
    cheap = Process(tmp_path / "a", *words)
    wait_for(lambda: cheap.runs() or frames(first) > 5000, f"frames: {cheap.said}", START_S)
    cheap.send(signal.SIGINT)
    assert cheap.wait() == 0, cheap.said

    # And then a cent a second, which no forecast foresees.
    dear = ("--set", "cost.cpu_hour=36", "--budget-dollars", "0.02")
    bounded = Process(tmp_path / "b", *words, *dear)
    assert bounded.wait() == 0, bounded.said
    result = bounded.summary()
    assert result["ended_by"].startswith("budget.dollars: $")
    assert (result["finished"], result["waiting"]) == ([], 3)
    assert sum(member.totals().dollars for member in read_members(folder)) >= 0.02

    ended = Process(tmp_path / "c", *words)
    assert ended.wait() == 0
    assert "ended by budget.dollars" in ended.said, "the set keeps its bound"
    assert ": resumes (" not in ended.said

    # The frames that two of three runs take.
    short = ("--set", f"stop.env_frames={frames(first) + 1000}", "--budget-dollars", "0")
    bound = ("--budget-frames", str(2.9 * (frames(first) + 1000)))
    last = Process(tmp_path / "d", *words, *short, *bound, "--parallel", "2")
    assert last.wait() == 0, last.said
    assert len(last.summary()["finished"]) == 2
    assert last.summary()["ended_by"].startswith("budget.frames: ")
