"""Energy: the kernel's counters (a folder of the same form), the driver's library (a fake, for want
of a GPU), and the model of busy CPUs."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from seedbed.telemetry.energy import CpuModel, EnergyStats, Nvml, Rapl, frames_per_kilojoule


def zone(folder: Path, zone_name: str, name: str, microjoules: int, limit: int = 10**9) -> Path:
    path = folder / zone_name
    path.mkdir(parents=True)
    for file, text in (
        ("name", name),
        ("energy_uj", str(microjoules)),
        ("max_energy_range_uj", str(limit)),
    ):
        (path / file).write_text(f"{text}\n")
    return path / "energy_uj"


def test_packages_and_memory_are_summed_and_cores_are_not_counted_twice(tmp_path: Path) -> None:
    one = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    two = zone(tmp_path, "intel-rapl:1", "package-1", 5_000_000)
    cores = zone(tmp_path, "intel-rapl:0:0", "core", 0)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 0)
    rapl = Rapl(tmp_path)
    assert rapl.is_there
    for file, value in ((one, 4_000_000), (two, 5_500_000), (cores, 9_000_000), (memory, 250_000)):
        file.write_text(str(value))
    assert rapl.read() == pytest.approx(3 + 0.5 + 0.25)
    one.write_text("4500000")
    assert rapl.read() == pytest.approx(4.25)


def test_a_counter_that_begins_again_loses_nothing(tmp_path: Path) -> None:
    file = zone(tmp_path, "intel-rapl:0", "package-0", 900_000_000, limit=1_000_000_000)
    rapl = Rapl(tmp_path)
    file.write_text("50000000")
    assert rapl.read() == pytest.approx(150)


def test_without_a_counter_that_may_be_read_there_is_none(tmp_path: Path) -> None:
    assert not Rapl(tmp_path / "none").is_there
    file = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    file.unlink()  # as if it were readable by root alone
    assert not Rapl(tmp_path).is_there
    assert not Nvml("libthere-is-none.so").is_there
    assert not CpuModel(0.0, lambda: 1.0).is_there
    assert not CpuModel(2.0, lambda: None).is_there


def test_gpus_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = [1_000, 50_000]  # millijoules

    class Library:
        def nvmlInit_v2(self) -> int:
            return 0

        def nvmlDeviceGetCount_v2(self, count: Any) -> int:
            count._obj.value = 3
            return 0

        def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:
            device._obj.value = index + 1
            return int(index == 2)  # one that does not answer

        def nvmlDeviceGetTotalEnergyConsumption(self, device: Any, joules: Any) -> int:
            joules._obj.value = counters[device.value - 1]
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    nvml = Nvml()
    assert nvml.is_there
    counters[:] = [3_000, 50_500]
    assert nvml.read() == pytest.approx(2.5)


def test_a_model_counts_where_no_counter_does(tmp_path: Path) -> None:
    seconds = [100.0]
    stats = EnergyStats(2.5, lambda: seconds[0], tmp_path)
    seconds[0] = 140.0
    assert (stats.sources, stats.joules_by_source) == ("model", {"model": 100.0})
    assert stats.totals() == {"joules": 100.0}
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    assert EnergyStats(2.5, lambda: seconds[0], tmp_path).sources == "rapl"
    nothing = EnergyStats(0.0, lambda: seconds[0], tmp_path / "none")
    assert (nothing.sources, nothing.totals()) == ("", {})


def test_frames_of_a_kilojoule() -> None:
    assert frames_per_kilojoule(20_000, 1_000) == 20_000
    assert frames_per_kilojoule(20_000, None) is None
    assert frames_per_kilojoule(None, 5.0) is None
    assert frames_per_kilojoule(20_000, 0.0) is None
