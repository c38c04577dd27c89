"""Files, the live line, prices, and what the machine has."""

from __future__ import annotations

import contextlib
import io
import os
import resource
from pathlib import Path
from typing import TextIO

import pytest

from seedbed.config.run import Cost
from seedbed.runtime.formats import duration, money, si_number, significant
from seedbed.runtime.limits import (
    machine_cpu_seconds,
    process_start_ticks,
    usable_cpus,
    usable_memory_bytes,
)
from seedbed.telemetry import cost
from seedbed.telemetry.bottleneck import Bottleneck
from seedbed.telemetry.progress import ProgressFile
from seedbed.telemetry.progress_line import ProgressLine, progress_line
from tests.support.telemetry_runs import Clock, make, some_events
from tests.support.terminal import shown_on
from tools.metrics_reference import metrics_reference


def test_progress_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    ProgressFile(path).append({"frames": 1, "return": None})
    ProgressFile(path).append({"return": 2.5, "frames": 2})
    assert path.read_text() == "frames,return\n1,\n2,2.5\n"


def test_progress_takes_new_columns_and_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    file = ProgressFile(path)
    file.append({"frames": 1})
    file.append({"frames": 2, "loss": 0.25, "part": "CPU"})
    file.append({"frames": 3})
    ProgressFile(path).append({"frames": 4, "mine": float("nan")})
    assert path.read_text() == "frames,loss,part,mine\n1,,,\n2,0.25,CPU,\n3,,,\n4,,,\n"


@pytest.mark.parametrize(
    ("before", "after", "dropped"),
    [
        ("frames,loss\n1,0.5\n2,0.", "frames,loss\n1,0.5\n3,1\n", 1),
        ("frames,loss\n1,0.5\n2\n4,0.5\n2", "frames,loss\n1,0.5\n4,0.5\n3,1\n", 2),
        ("frames,lo", "frames,loss\n3,1\n", 1),
        ("frames,loss\n1,0.5\n", "frames,loss\n1,0.5\n3,1\n", 0),
    ],
)
def test_rows_that_were_cut_are_dropped_and_counted(
    before: str, after: str, dropped: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "progress.csv"
    path.write_text(before)
    file = ProgressFile(path)
    file.append({"frames": 3, "loss": 1.0})
    assert path.read_text() == after
    assert file.dropped_rows == dropped
    assert (f"{path}: {dropped} " in caplog.text) == bool(dropped)


def test_a_row_that_fills_the_volume_leaves_no_half_row(tmp_path: Path) -> None:
    """The kernel takes the first bytes of a row and refuses the rest, as a full disk does."""
    path = tmp_path / "progress.csv"
    file = ProgressFile(path)
    file.append({"frames": 1, "loss": 0.5})
    whole = path.read_text()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 5, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            file.append({"frames": 2, "loss": 0.123456})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert path.read_text() == whole + "2,0.1", "half a row is there"
    file.append({"frames": 3, "loss": 1.0})
    assert path.read_text() == whole + "3,1\n"
    assert file.dropped_rows == 1


def test_line_tells_it_all() -> None:
    clock = Clock()
    telemetry, out = make(None, clock, stop={"env_frames": 80})
    some_events(telemetry)
    clock.now += 10
    telemetry.tick()
    line = out.getvalue().split(" ", 1)[1]
    assert line == (
        "return -6.00 (last 3) | 40 frames | 4 frames/s | ETA 10 s | bound by latency | $0.0100\n"
    )
    telemetry.cost.end_training()
    telemetry.evaluation.is_last, telemetry.evaluation.progress = True, "3 of 20 episodes"
    clock.now += 60
    telemetry.tick()
    last = out.getvalue().splitlines()[-1].split(" ", 1)[1]
    assert last == (
        "return -6.00 (last 3) | 40 frames | now: the last evaluation: 3 of 20 episodes | $0.0700"
    )
    assert telemetry.status()["state"] == "evaluating"


def test_a_mean_return_may_end_the_run_before_its_eta() -> None:
    clock = Clock()
    telemetry, out = make(None, clock, stop={"env_frames": 80, "mean_return": 5})
    some_events(telemetry)
    clock.now += 10
    telemetry.tick()
    assert "| ETA at most 10 s |" in out.getvalue()


def test_line_without_data_shows_no_zeros() -> None:
    telemetry, out = make(None, Clock())
    telemetry.tick()
    shown = out.getvalue()
    assert "return - |" in shown
    assert "| - frames/s | ETA - |" in shown
    assert "now: no actors are connected" in shown


@pytest.mark.parametrize(
    ("columns", "line"),
    [(0, "one two | three"), (16, "one two | three"), (15, "one two | thr…"), (8, "one tw…")],
)
def test_a_narrow_terminal_cuts_the_line(columns: int, line: str) -> None:
    shown = shown_on(columns, 24, lambda out: ProgressLine(out).show(["one two", "three"]))
    assert shown == f"\r\x1b[K{line}end"


def test_a_line_that_cannot_be_written_ends_no_run() -> None:
    """The file that takes standard error lies on a volume that is full."""
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:  # noqa: PTH123
        line = ProgressLine(full)
        for _ in range(3):
            line.show(["here"])
        line.close()
        line = None  # nothing has raised
    assert line is None


def test_terminal_is_refreshed_in_place() -> None:
    def write(out: TextIO) -> None:
        line = ProgressLine(out)
        line.show(["one"])
        line.show(["two"])
        line.close()
        line.close()

    assert shown_on(0, 0, write) == "\r\x1b[Kone\r\x1b[Ktwo\r\nend"


def test_words_for_numbers() -> None:
    assert [si_number(x) for x in (0, 999, 12_345, 1_234_567, 45_600_000, 7_890_000_000)] == [
        *("0", "999", "12.3K", "1.23M", "45.6M", "7.89G"),
    ]
    assert [money(x) for x in (None, 0.0, 0.00001, 0.0123, 0.5, 1234.5)] == [
        *("-", "$0.00", "below $0.0001", "$0.0123", "$0.50", "$1,234.50"),
    ]
    assert [duration(x) for x in (None, 5, 89, 90, 3540, 3600, 12_000, 187_200)] == [
        *("-", "5 s", "89 s", "2 min", "59 min", "1 h 0 min", "3 h 20 min", "2 d 4 h"),
    ]


def test_a_waiting_run_says_so_instead_of_a_bottleneck() -> None:
    telemetry, _ = make(None, Clock())
    telemetry.tick()
    parts = progress_line(telemetry.numbers, Bottleneck("idle", "nobody"), None, "first compile")
    assert "now: first compile" in parts


def test_price_of_what_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "share_of_machine", lambda: (8.0, 16.0 * 2**30))
    prices = {"cpu_hour": 0.03, "memory_gib_hour": 0.004, "accelerator_hour": 1.5}
    assert cost.dollars_per_hour(Cost(**prices)) == pytest.approx(0.24 + 0.064)
    charged = Cost(**prices, cpus=2, memory_gib=4, accelerators=3)
    assert cost.dollars_per_hour(charged) == pytest.approx(0.06 + 0.016 + 4.5)


def test_status_says_what_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `seedbed table` can price a run by another table."""
    monkeypatch.setattr(cost, "share_of_machine", lambda: (8.0, 16.0 * 2**30))
    sizes = {"memory_gib": 4, "accelerators": 3}
    telemetry, _ = make(None, Clock(), cost=sizes)
    assert telemetry.status()["charged"] == {**sizes, "cpus": 8, "metered": False}


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemTotal:  8388608 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V1 = "4:memory:/pod/me\n3:cpuset:/\n2:cpu,cpuacct:/pod/me\n"


@pytest.mark.parametrize(
    ("files", "cpus", "gib"),
    [
        ({}, None, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n",
          "sys/fs/cgroup/memory.max": "1073741824\n"}, 0.5, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n",
          "sys/fs/cgroup/memory.max": "max\n"}, None, 8),
        # More than there is.
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "99000000 100000\n",
          "sys/fs/cgroup/memory.max": "999999999999\n"}, None, 8),
        # The tighter limit of a parent holds.
        ({"proc/self/cgroup": "0::/pod/me\n", "sys/fs/cgroup/pod/cpu.max": "25000 100000\n",
          "sys/fs/cgroup/pod/me/cpu.max": "50000 100000\n"}, 0.25, 8),
        # Inside a container the path is the host's and only the top is visible.
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648\n",
          "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "30000\n",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 0.3, 2),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None, 8),
    ],
)  # fmt: skip
def test_limits_of_containers(
    tmp_path: Path, files: dict[str, str], cpus: float | None, gib: int
) -> None:
    root = machine(tmp_path, files)
    assert usable_cpus(root) == (cpus or len(os.sched_getaffinity(0)))
    assert usable_memory_bytes(root) == gib * 2**30


def test_cpu_seconds_of_the_container_or_the_machine(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/stat": "cpu  100 20 30 9999 77 5 5 0 0 0\ncpu0 ...\n"})
    assert machine_cpu_seconds(root) == pytest.approx(160 / os.sysconf("SC_CLK_TCK"))
    machine(
        root,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        },
    )
    assert machine_cpu_seconds(root) == 2.5


def test_process_is_known_by_number_and_start(tmp_path: Path) -> None:
    ours = process_start_ticks(os.getpid())
    assert ours is not None
    assert ours > 0
    text = "7 (a (strange) name) S " + " ".join(str(n) for n in range(4, 53))
    assert process_start_ticks(7, machine(tmp_path, {"proc/7/stat": text})) == 22
    assert process_start_ticks(8, tmp_path) is None


def test_a_log_gets_a_line_each_half_minute_and_the_last_one() -> None:
    clock, out = Clock(), io.StringIO()
    line = ProgressLine(out, clock)
    for second in range(65):
        clock.now = 1000.0 + second
        line.show([f"second {second}", 150 * "x"])
    line.close()
    line.close()
    shown = out.getvalue().splitlines()
    assert [text.split(" | ")[0].split(" ", 1)[1] for text in shown] == [
        *("second 0", "second 30", "second 60", "second 64"),
    ]
    assert {len(text.split(" ", 1)[1]) for text in shown} == {120}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.9416, "0.942"), (0.8699, "0.870"), (9.999, "10.0"), (475.2, "475")),
        *((12345.6, "12,346"), (-21, "-21.0"), (0, "0.00"), (None, "-"), (1e-9, "0.00000")),
    ],
)
def test_three_significant_figures(value: float | None, text: str) -> None:
    assert significant(value) == text


def test_live_line_goes_where_it_is_told() -> None:
    out = io.StringIO()
    ProgressLine(out).show(["here"])
    assert out.getvalue().endswith(" here\n")


def test_metrics_reference_is_what_the_code_exports() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == metrics_reference(), (
        "run: python -m tools.metrics_reference > docs/metrics.md"
    )
