"""The lines of a set on a terminal and in a log."""

from __future__ import annotations

import io
import json
import os
import pty
from pathlib import Path
from typing import Any, TextIO

import pytest

from seedbed.config.load import dump_experiment
from seedbed.sets.folder import Member, read_members, write_set
from seedbed.sets.live import LiveSet
from seedbed.sets.resolve import resolve
from seedbed.sets.sweep import read_sweep
from seedbed.telemetry.live_lines import LiveLines
from tests.support.terminal import shown_on


@pytest.fixture
def members(tmp_path: Path) -> list[Member]:
    settings = ["stop.env_frames=1000", "evaluation.at_end=false"]
    wanted = resolve(read_sweep("cartpole-vtrace", settings, {"seeds": 3}), "cartpole-vtrace")
    write_set(tmp_path, wanted)
    return read_members(tmp_path)


def write_status(member: Member, frames: int, **more: Any) -> None:
    member.run.mkdir(parents=True, exist_ok=True)
    numbers = {"mean_return": 21.0, "mean_return_episodes": 100, "env_frames": frames,
               "env_fps_10s": 50.0, "run_dollars": frames / 100}  # fmt: skip
    status = {
        "time": 100.0, "counters": {"env_frames": frames, "dollars": frames / 100},
        "numbers": numbers, "bottleneck": {"part": "actors", "sentence": ""},
        "eta": {"seconds": 30.0, "condition": "env_frames", "dollars": 0.0},
        "stop": {"mean_return": 475}, "waiting_for": None, "over": None,
    }  # fmt: skip
    (member.run / "status.json").write_text(json.dumps(status | more))


def finish(member: Member, mean: float) -> None:
    write_status(member, 1000)
    (member.run / "experiment.yaml").write_text(dump_experiment(member.experiment))
    (member.run / "summary.json").write_text(json.dumps({"updates": 9}))
    columns = "env_frames,updates,training_seconds,mean,episodes,policy,checkpoint"
    (member.run / "evaluations.csv").write_text(f"{columns}\n1000,9,20,{mean},5,agent,c9\n")


def lines_on(columns: int, rows: int, blocks: list[list[str]]) -> str:
    """What reaches a terminal of so many columns and rows."""

    def write(out: TextIO) -> None:
        lines = LiveLines(out)
        for block in blocks:
            lines.show(block)
        lines.clear()

    return shown_on(columns, rows, write).replace("\r\n", "\n")


def test_lines_are_refreshed_in_place_and_never_exceed_the_terminal() -> None:
    assert lines_on(80, 24, [["a", "b"], ["c"]]) == (
        "\r\x1b[Ja\nb\n\r\x1b[2A\x1b[Jc\n\r\x1b[1A\x1b[Jend"
    )
    many = [f"{number} {'x' * 200}" for number in range(30)]
    for columns, width in ((80, 79), (120, 119), (200, 120)):
        shown = lines_on(columns, 6, [many]).split("\x1b[J")
        lines = shown[1].splitlines()[:5]
        assert [line[:2] for line in lines] == ["0 ", "1 ", "2 ", "an", "29"]
        assert lines[3] == "and 26 lines more"
        assert {len(line) for line in lines} == {width, len(lines[3])}
        assert shown[1].endswith("\x1b[5A"), "as many rows back as were written"


def test_a_line_a_run_that_trains_and_one_for_the_whole(
    members: list[Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = members
    finish(first, 300.0)
    write_status(second, 500)
    write_status(third, 200, time=80.0)  # of the process before
    shown: list[list[str]] = []
    monkeypatch.setattr(LiveLines, "show", lambda self, lines: shown.append(list(lines)))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as out:
        LiveSet(tmp_path, out).show({second.name: 90.0, third.name: 90.0})
    os.close(ours)
    (lines,) = shown
    assert lines == [
        f"{second.name} | return 21.0 (last 100) | 500 frames | 50 frames/s | ETA at most 30 s | "
        "bound by actors | $5.00",
        f"{third.name} | starting",
        f"set: 1 of 3 runs finished, 2 running | 0 s | $17.00 | best 300, {first.name} | "
        "1.70K frames",
    ]


def test_a_log_has_a_line_when_a_run_has_ended_alone(
    members: list[Member], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = LiveSet(tmp_path, io.StringIO())
    for _ in range(3):
        live.show({members[0].name: 90.0})
    assert capsys.readouterr().err == ""
    finish(members[0], 300.0)
    live.show_end({})
    live.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("set: 1 of 3 runs finished | 0 s | $10.00 | best 300")
