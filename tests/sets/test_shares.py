"""How many runs fit on a machine, and what each of them gets: cores, memory, devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.config.run import Cost
from seedbed.runtime import usage
from seedbed.runtime.limits import SHARE, memory_kills
from seedbed.runtime.usage import Usage, usage_of
from seedbed.sets import shares
from seedbed.sets.shares import Shares, share
from seedbed.telemetry.cost import dollars_per_hour

GIB = 2**30


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 16 cores, 8 GiB and no device."""
    monkeypatch.setattr(shares, "usable_cpus", lambda: 16.0)
    monkeypatch.setattr(shares, "usable_memory_bytes", lambda: 8 * GIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "")


def measured(
    monkeypatch: pytest.MonkeyPatch, memory_gib: float, cores: float, devices: str = ""
) -> tuple[int, str]:
    """What `auto` chooses after a run that took so much."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    taken = Usage(int(memory_gib * GIB), cores * 100)
    monkeypatch.setattr(shares, "usage_of", lambda pid: taken)
    monkeypatch.setattr(shares.time, "monotonic", lambda: 500.0)
    told: list[str] = []
    found = Shares(None, "auto", 1, told.append)
    assert found.most == 1, "until a run was measured, one run"
    found.measure([1], 400.0, has_trained=True)
    assert found.most == 1, "its memory has just risen"
    found.choose()  # the run has ended
    return found.most, told[-1]


def test_auto_counts_cores_memory_and_devices_and_tells_which_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert measured(monkeypatch, 3.1, 2.0) == (
        2, "room for 2 runs at once, memory: a run takes 3.1 GiB of 7.2 GiB",
    )  # fmt: skip
    assert measured(monkeypatch, 0.1, 2.1) == (
        8,
        "room for 8 runs at once, cores: a run takes 2.1 of 16",
    )
    assert measured(monkeypatch, 0.1, 2.1, "2,GPU-8f") == (
        2, "room for 2 runs at once, devices: place for 2, and --runs-per-device makes more",
    )  # fmt: skip
    assert measured(monkeypatch, 30.0, 2.0) == (
        1, "room for 1 run at once, memory: a run takes 30.0 GiB of 7.2 GiB",
    )  # fmt: skip


def test_a_run_that_goes_on_is_measured_when_its_memory_is_steady(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, taken = [100.0], [1.0]
    monkeypatch.setattr(shares.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(shares, "usage_of", lambda pid: Usage(int(taken[0] * GIB), now[0] - 90.0))
    found = Shares(None, "auto", 1, str)
    for now[0], taken[0], most in ((100.0, 1, 1), (150.0, 2, 1), (205.0, 2, 1), (210.0, 2, 3)):
        found.measure([1], 90.0, has_trained=True)
        assert found.most == most, now
    # More memory than was foreseen: no other one starts.
    now[0], taken[0] = 300.0, 3.5
    found.measure([1, 2, 3], 90.0, has_trained=True)
    now[0] = 360.0
    found.measure([1, 2, 3], 90.0, has_trained=True)
    assert found.most == 2


def test_each_run_sees_a_device_of_its_own_among_those_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-8f")

    def seen(found: Shares, slot: int, device: str = "auto") -> dict[str, str]:
        with found.given(slot, device) as environment:
            return {name: environment[name] for name in environment if name != SHARE}

    told: list[str] = []
    found = Shares(5, "auto", 1, told.append)
    assert found.most == 2, "the rest waits"
    assert told == [
        "room for 2 runs at once, devices: place for 2, and --runs-per-device makes more"
    ]
    assert [seen(found, slot) for slot in (0, 1)] == [
        {"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "GPU-8f"},
    ]  # fmt: skip
    assert seen(found, 1, "cpu") == {}
    found = Shares(5, "auto", 2, told.append)
    assert found.most == 4
    assert [seen(found, slot)["CUDA_VISIBLE_DEVICES"] for slot in range(4)] == [
        "2", "GPU-8f", "2", "GPU-8f",
    ]  # fmt: skip
    assert seen(found, 0)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    assert seen(Shares(1, "auto", 1, told.append), 0) == {}, "a run alone has all devices"
    assert Shares(5, "cpu", 1, told.append).most == 5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = Shares(5, "auto", 1, told.append)
    assert (found.most, seen(found, 3)) == (5, {})


def test_runs_at_once_are_charged_one_machine_together(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = Cost(cpu_hour=0.03, memory_gib_hour=0.004)
    prices = []
    for slot in range(3):
        with Shares(3, "cpu", 1, str).given(slot, "cpu") as environment:
            monkeypatch.setenv(SHARE, environment[SHARE])
        prices.append(dollars_per_hour(cost))
    assert sum(prices) == pytest.approx(16 * 0.03 + 8 * 0.004, rel=1e-4)
    assert len(set(prices)) == 1


def test_the_cores_are_shared_out() -> None:
    cores = [3, 4, 6, 8, 9]
    shares_of_two = [share(cores, 5, slot, 2) for slot in range(2)]
    assert shares_of_two == [{3, 4}, {6, 8, 9}]
    assert [share(cores, 5, slot, 7) for slot in range(7)] == [
        {3}, {3}, {4}, {6}, {6}, {8}, {9},
    ]  # fmt: skip
    # A container that may keep two of five cores busy.
    first, second = share(cores, 2, 0, 2), share(cores, 2, 1, 2)
    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_run_starts_on_its_own_cores_and_this_process_keeps_its(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = os.sched_getaffinity(0)
    monkeypatch.setattr(shares, "usable_cpus", lambda: float(len(mine)))
    found = Shares(2, "auto", 1, str)
    code = "import os; print(len(os.sched_getaffinity(0)))"
    with found.given(0, "auto"):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert int(run.stdout) == len(mine) // 2
    assert os.sched_getaffinity(0) == mine


def test_what_a_run_takes_is_that_of_all_its_processes(tmp_path: Path) -> None:
    def process(pid: int, parent: int, ticks: str, kilobytes: int) -> None:
        folder = tmp_path / f"proc/{pid}"
        folder.mkdir(parents=True)
        before = " ".join(["0"] * 9)
        (folder / "stat").write_text(f"{pid} (a (b) c) S {parent} {before} {ticks} 0 0\n")
        (folder / "smaps_rollup").write_text(f"x\nRss: 99999 kB\nPss: {kilobytes} kB\n")

    hertz = os.sysconf("SC_CLK_TCK")
    process(7, 1, f"{hertz} 0 0 0", 100)
    process(8, 7, f"0 {hertz} 0 0", 20)
    process(9, 8, f"0 0 {hertz} {hertz}", 3)
    process(70, 1, f"{hertz} 0 0 0", 4000)
    assert usage_of(7, tmp_path) == Usage(123 * 1024, 4.0)
    assert usage_of(6, tmp_path) == Usage(0, 0.0)
    assert usage.usage_of(os.getpid()).memory_bytes > 10 * 2**20


def test_kills_for_memory_are_those_of_the_container_if_it_is_one(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    write("proc/vmstat", "oom_kill 9\n")
    assert memory_kills(tmp_path) == 9
    write("proc/self/cgroup", "0::/pod/box\n")
    write("sys/fs/cgroup/memory.events", "low 0\noom 5\noom_kill 4\n")
    assert memory_kills(tmp_path) == 4
    write("proc/self/cgroup", "4:memory:/pod\n")
    write("sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill 2\n")
    assert memory_kills(tmp_path) == 2
    assert memory_kills(tmp_path / "none") == 0
