"""`seedbed status` of a directory, of a dead run, and of a learner that answers."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from seedbed.cli import status
from seedbed.cli.status import read_file
from seedbed.cli.status_page import fitted, status_page
from seedbed.runs.record import Record
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry import Telemetry
from seedbed.telemetry.status import this_process
from seedbed.v1 import inference_pb2, inference_pb2_grpc
from tests.support.telemetry_runs import Clock, make, some_events


def seedbed(*words: str) -> int:
    parser = argparse.ArgumentParser()
    status.add_arguments(parser)
    args = parser.parse_args(words)
    code: int = status.run(args)
    return code


def a_run(run_dir: Path) -> Telemetry:
    clock = Clock()
    telemetry, _ = make(run_dir, clock, stop={"env_frames": 80, "dollars": 1.0})
    some_events(telemetry)
    clock.now += 10
    telemetry.tick()
    return telemetry


def test_page_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path)
    assert seedbed(str(tmp_path)) == ExitCode.OK
    page = capsys.readouterr().out
    for told in (
        "small: CartPole-v1, agent ppo",
        "40 of 80 (50 %); 16 trained on, 5 discarded",
        "10 s; about 10 s to go (env_frames), for $0.0100 more",
        "-6.00 mean of the last 3 episodes, from -21.00 to 3.00",
        "$0.0100 so far of $1.00; $3.60 an hour, $250,000.00 a billion frames",
        "75 % of their time stepping",
        "round trip  10.0 ms (p50), 10.0 ms (p99) from a step to its actions",
        "1 FAILED",
        "session ended 5",
        "reward 1",
    ):
        assert told in page
    assert max(len(line) for line in page.splitlines()) <= 160


def test_page_before_anything_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry, _ = make(tmp_path, Clock())
    telemetry.tick()
    seedbed(str(tmp_path))
    page = capsys.readouterr().out
    assert "now         no actors are connected" in page
    assert "no episode has ended yet" in page
    assert "none written by this process yet" in page
    assert "None" not in page


def test_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = a_run(tmp_path)
    telemetry.stop_reason = "stop.env_frames: 80 of 80"
    telemetry.close()
    seedbed(str(tmp_path))
    page = capsys.readouterr().out
    assert "finished    stop.env_frames: 80 of 80" in page
    assert "to go" not in page


def test_a_start_that_ends_before_its_first_step_is_no_finished_run(tmp_path: Path) -> None:
    telemetry = a_run(tmp_path)
    telemetry.stop_reason = "stop.env_frames: 80 of 80"
    telemetry.close()
    finished = (tmp_path / "status.json").read_bytes()
    start = Record(tmp_path, env_frames=80)
    start.note_start()
    assert "waiting" in status_page(read_file(tmp_path))
    assert "finished" not in status_page(read_file(tmp_path))
    assert not start.has_stepped()
    start.take_back()
    assert (tmp_path / "status.json").read_bytes() == finished


def test_run_whose_process_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path)
    path = tmp_path / "status.json"
    content = json.loads(path.read_text())
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(timeout=30)
    content["process"]["pid"] = ended.pid
    content["time"] -= 7200
    path.write_text(json.dumps(content))
    seedbed(str(tmp_path))
    page = capsys.readouterr().out
    assert "DEAD" in page
    assert "2 h 0 min ago" in page
    # A process that lives may be busy, such as with its last checkpoint.
    content["process"] = {**this_process(), "pid": os.getpid()}
    path.write_text(json.dumps(content))
    seedbed(str(tmp_path))
    page = capsys.readouterr().out
    assert "SILENT" not in page
    assert f"process {os.getpid()} on " in page
    assert "runs, and wrote its status 2 h 0 min ago" in page
    # On another machine it cannot be seen, only that it is silent.
    content["process"]["host"] = "elsewhere"
    path.write_text(json.dumps(content))
    seedbed(str(tmp_path))
    assert "SILENT" in capsys.readouterr().out
    seedbed(str(tmp_path), "--json")
    source = json.loads(capsys.readouterr().out)["source"]
    assert source["alive"] is None
    assert source["age_s"] == pytest.approx(7200, abs=60)


EVIL = "\x1b[2J\x1b]0;mine\x07\nFORGED line\u202e"


def forged(value: object) -> object:
    """A status of another's run: each of its texts, and of its keys beside the known ones."""
    if isinstance(value, dict):
        return {name: forged(one) for name, one in value.items()} | {EVIL: 1}
    if isinstance(value, list):
        return [*map(forged, value), EVIL]
    return EVIL if isinstance(value, str) else value


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_run_from_elsewhere_forges_no_line_and_controls_no_terminal(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path)
    path = tmp_path / "status.json"
    path.write_text(json.dumps(forged(json.loads(path.read_text()))))
    (tmp_path / "history.json").write_text(json.dumps({"starts": [EVIL], "packages": {EVIL: EVIL}}))
    seedbed(str(tmp_path), *words)
    page = capsys.readouterr().out
    assert "FORGED" in page
    assert not any(line.startswith("FORGED") for line in page.splitlines())
    assert all(line.isprintable() for line in page.split("\n"))


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(SeedbedError, match="no run directory, and no run is below it") as caught:
        seedbed(str(tmp_path))
    assert caught.value.code is ExitCode.RUN_DIRECTORY
    (tmp_path / "status.json").write_text("{")
    with pytest.raises(SeedbedError, match=r"cannot read .*status\.json"):
        seedbed(str(tmp_path))


class Servicer(inference_pb2_grpc.InferenceServicer):  # type: ignore[misc]
    """Answers with the status of a telemetry."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def GetStatus(self, request: object, context: object) -> inference_pb2.GetStatusReply:
        return inference_pb2.GetStatusReply(json=json.dumps(self._telemetry.status()))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    inference_pb2_grpc.add_InferenceServicer_to_server(Servicer(a_run(run_dir)), server)
    address = f"unix:{tmp_path}/s"
    server.add_insecure_port(address)
    server.start()
    yield address
    server.stop(None).wait(timeout=10)


def test_learner_that_answers(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    seedbed(address)
    assert "small: CartPole-v1" in capsys.readouterr().out
    seedbed(address, "--json")
    assert json.loads(capsys.readouterr().out)["counters"]["env_frames"] == 40


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(SeedbedError, match=f"127.0.0.1:{port}") as caught:
        seedbed(f"127.0.0.1:{port}")
    assert caught.value.code is ExitCode.LEARNER_UNREACHABLE


@pytest.mark.timeout(6)
def test_silence_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "DEADLINE_S", 0.3)
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never says a word
    with silent, pytest.raises(SeedbedError, match=r"within 0\.3 s") as caught:
        seedbed(f"127.0.0.1:{silent.getsockname()[1]}")
    assert caught.value.code is ExitCode.LEARNER_UNREACHABLE


def test_neither_directory_nor_address() -> None:
    with pytest.raises(SeedbedError, match="run directory") as caught:
        seedbed("runs/that-does-not-exist")
    assert caught.value.code is ExitCode.USAGE


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_breaks_lines_between_words(tmp_path: Path, columns: int) -> None:
    a_run(tmp_path)
    page = status_page(read_file(tmp_path))
    lines = fitted(page, columns).splitlines()
    assert fitted(page, columns).split() == page.split()
    assert max(map(len, (line for line in lines if " " in line.strip()))) <= columns
    assert fitted(page, 1000) == page
    long = f"  command     seedbed train {'x' * 60} --set seed=3"
    assert "x" * 60 in fitted(long, columns), "a path can be copied"


def test_a_folder_of_runs_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        a_run(tmp_path / name)
    seedbed(str(tmp_path))
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("run")
    assert [row.split()[0] for row in rows] == ["a", "b"]
