"""Energy of a run: counters of the CPU and of NVIDIA GPUs, or a power model of the CPU.

Assran et al. 2019 (GALA, Figure 3) compare frames a kilojoule. Counters are of the whole machine,
so a run has it to itself where its energy is to mean something.
"""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from seedbed.runtime.limits import machine_cpu_seconds
from seedbed.runtime.metrics import Metric, counter, documented

_POWERCAP = Path("/sys/class/powercap")


class Rapl:
    """Energy counters of CPU packages and their memory (Linux powercap, Intel and AMD).

    Args:
        folder: the kernel's folder of zones.
    """

    def __init__(self, folder: Path = _POWERCAP) -> None:
        self._zones = []
        for zone in sorted(folder.glob("intel-rapl:*")):
            name = _text(zone / "name")
            # Cores and graphics are parts of their package.
            if name.startswith("package") or name == "dram":
                self._zones.append(zone)
        self._before = [self._microjoules(zone) for zone in self._zones]
        self.joules = 0.0

    @property
    def is_there(self) -> bool:
        """Whether there is a counter that this user may read."""
        return bool(self._zones) and None not in self._before

    def read(self) -> float:
        """Return the joules since the first call or the construction."""
        now = [self._microjoules(zone) for zone in self._zones]
        for zone, before, after in zip(self._zones, self._before, now, strict=True):
            if before is not None and after is not None:
                more = after - before
                if more < 0:  # the counter has begun again
                    more += int(_text(zone / "max_energy_range_uj") or 0)
                self.joules += max(0, more) / 1e6
        self._before = now
        return self.joules

    @staticmethod
    def _microjoules(zone: Path) -> int | None:
        text = _text(zone / "energy_uj")
        return int(text) if text.isdigit() else None


class Nvml:
    """Energy counters of NVIDIA GPUs, since Volta, by the driver's own library."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        self._devices: list[Any] = []
        try:
            self._nvml = ctypes.CDLL(library)
        except OSError:
            return
        count = ctypes.c_uint()
        if self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        for index in range(count.value):
            device = ctypes.c_void_p()
            if not self._nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
                self._devices.append(device)
        self._first = self._millijoules()

    @property
    def is_there(self) -> bool:
        """Whether there is a GPU that counts."""
        return bool(self._devices) and self._first > 0

    def read(self) -> float:
        """Return the joules of all GPUs since the construction."""
        return (self._millijoules() - self._first) / 1e3

    def _millijoules(self) -> int:
        total = 0
        for device in self._devices:
            energy = ctypes.c_ulonglong()
            if not self._nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy)):
                total += energy.value
        return total


class CpuModel:
    """Energy of busy CPUs: so many watts each, idle ones and memory not counted.

    Args:
        watts: power of one busy vCPU.
        cpu_seconds: returns the CPU seconds used so far.
    """

    def __init__(self, watts: float, cpu_seconds: Callable[[], float | None]) -> None:
        self._watts, self._cpu_seconds = watts, cpu_seconds
        self._first = cpu_seconds() or 0.0

    @property
    def is_there(self) -> bool:
        """Whether a power is set and CPU seconds are known."""
        return self._watts > 0 and self._cpu_seconds() is not None

    def read(self) -> float:
        """Return the joules since the construction."""
        return self._watts * ((self._cpu_seconds() or 0.0) - self._first)


class EnergyStats:
    """Energy since the start of this process.

    Args:
        cpu_watts: `cost.cpu_watts`, for machines without a counter.
        cpu_seconds: returns the CPU seconds used on this machine so far.
        folder: the kernel's folder of energy counters.

    Attributes:
        joules_by_source: Energy in joules since the start of this process, by source: `rapl`
            (counters of the CPUs), `nvml` (of NVIDIA GPUs), `model` (busy CPUs times
            `cost.cpu_watts`, where there is no counter). All of the machine.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__, counter("seedbed_energy_joules_total", "joules_by_source", ("source",))
    )

    def __init__(
        self,
        cpu_watts: float = 0.0,
        cpu_seconds: Callable[[], float | None] = machine_cpu_seconds,
        folder: Path = _POWERCAP,
    ) -> None:
        rapl = Rapl(folder)
        self._lock = threading.Lock()
        self._sources: dict[str, Rapl | CpuModel | Nvml] = {}
        if rapl.is_there:
            self._sources["rapl"] = rapl
        elif (model := CpuModel(cpu_watts, cpu_seconds)).is_there:
            self._sources["model"] = model
        if (nvml := Nvml()).is_there:
            self._sources["nvml"] = nvml

    @property
    def joules_by_source(self) -> dict[str, float]:
        """Energy by source; empty where nothing counts."""
        with self._lock:
            return {name: source.read() for name, source in self._sources.items()}

    @property
    def sources(self) -> str:
        """The sources in words, such as `rapl + nvml`; empty where nothing counts."""
        return " + ".join(self._sources)

    def totals(self) -> dict[str, float]:
        """Return the joules so far, for rates; empty where nothing counts."""
        return {"joules": sum(self.joules_by_source.values())} if self._sources else {}


def frames_per_kilojoule(frames: float | None, joules: float | None) -> float | None:
    """Return emulator frames for a kilojoule; None where either is unknown, or no energy was used.

    Args:
        frames: frames, or frames a second.
        joules: energy of the same time, or the power.
    """
    return 1000 * frames / joules if frames is not None and joules else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # counters may be readable by root alone
        return ""
