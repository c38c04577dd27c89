"""A learner that does not fit its device says so before anything is allocated."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from seedbed.backends import gpu_memory
from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split
from seedbed.config import parse_experiment
from seedbed.runtime.exit_codes import ConfigError, ExitCode
from seedbed.services.learner.device_memory import Need, check_memory
from seedbed.spec import ArraySpec, EnvironmentSpec

MIB = 2**20
SPEC = EnvironmentSpec("tests:any", ArraySpec((64, 64), "uint8"), 11, 1)
TEXT = """
name: large
environment: {id: "tests:any"}
agent: r2d2
r2d2: {burn_in: 3, n_steps: 2, dueling_units: 16}
learner:
  network: nature
  lstm_units: 8
  frame_stack: 2
  unroll_length: 5
  batch_size: 6
  replay: {storage: device, capacity: 40, min_size: 1}
  inference: {slots: 64, max_batch_envs: 16}
actor: {envs_per_group: 4}
"""


@pytest.mark.backends
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["learner.replay.capacity=4000"], r"learner.replay.capacity from 4000 to at most \d\d\d,"),
        (["learner.inference.slots=9000"], r"learner.inference.slots from 9000 to at most \d{4},"),
        (["r2d2.dueling_units=300000"], r"reduce the network \(learner.network_options\)$"),
    ],
)
def test_what_does_not_fit_is_refused(
    overrides: list[str], said: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seedbed.services.learner.components_factory import build_components

    experiment = parse_experiment(TEXT, [*overrides, f"learner.backend={backend.name}"])
    monkeypatch.setattr(type(backend), "memory_bytes", lambda _: 16 * MIB)
    monkeypatch.setattr(backend, "tables", None)  # nothing is allocated
    with pytest.raises(ConfigError, match=said) as refused:
        build_components(experiment, SPEC, backend)
    assert refused.value.code == ExitCode.CONFIG
    assert "cpu:0 has 16 MiB of memory" in str(refused.value)
    assert "the learner needs " in str(refused.value)


@pytest.mark.backends
def test_what_the_refusal_advises_fits(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbed.services.learner.components_factory import build_components

    of_backend = f"learner.backend={backend.name}"
    monkeypatch.setattr(type(backend), "memory_bytes", lambda _: 16 * MIB)
    with pytest.raises(ConfigError) as refused:
        build_components(
            parse_experiment(TEXT, ["learner.replay.capacity=4000", of_backend]), SPEC, backend
        )
    advised = int(str(refused.value).split("at most ")[1].split(",")[0])
    fits = parse_experiment(TEXT, [f"learner.replay.capacity={advised - 10}", of_backend])
    assert build_components(fits, SPEC, backend).trainer.state_bytes() > MIB


def test_devices_with_roles_need_their_own_part() -> None:
    """What acts and what trains share memory on one device only."""
    acting, training = [Need("a", 6, "x", 3)], [Need("b", 7, "y", 7, ", or z")]

    def check(split: Split, limit: int) -> None:
        backend: Any = SimpleNamespace(
            devices=lambda: ["gpu:0"], memory_bytes=lambda: limit, split=split
        )
        check_memory(backend, acting, training)

    check(Split(0, 1), 13)
    check(Split(1, 3), 7)
    check(Split(0, 1), 0)  # unknown
    with pytest.raises(ConfigError, match=r"reduce y from 7 to at most 6, .*, or z"):
        check(Split(0, 1), 12)
    with pytest.raises(ConfigError, match="reduce y from 7 to at most 6"):
        check(Split(1, 3), 6)


def test_the_driver_is_asked_for_the_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(size: Any, _: Any) -> int:
        size._obj.value = 3 * MIB
        return 0

    driver = SimpleNamespace(
        cuInit=lambda _: 0, cuDeviceGet=lambda *_: 0, cuDeviceTotalMem_v2=total
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    assert gpu_memory.gpu_memory_bytes() == 3 * MIB
    driver.cuInit = lambda _: 100  # there is no device
    assert gpu_memory.gpu_memory_bytes() == 0
    monkeypatch.undo()
    monkeypatch.setattr(gpu_memory, "_DRIVER", "libnone.so.1")
    assert gpu_memory.gpu_memory_bytes() == 0
