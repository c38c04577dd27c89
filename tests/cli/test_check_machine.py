"""`seedbed check machine` finds what would stop a run, and imports no backend itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli import check_machine, machine_checks, part_checks, precision_check
from seedbed.config import Experiment, parse_experiment
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.findings import Finding, lines

ROOT = Path(__file__).parents[2]
GIB = 1 << 30


def experiment(*overrides: str) -> Experiment:
    return parse_experiment("name: x\nenvironment: {id: CartPole-v1}", overrides)


@pytest.mark.slow
def test_a_whole_examination_imports_no_backend(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from seedbed.cli.main import main\n"
        f"code = main(['check', 'machine', '--json', '--run-dir', {str(tmp_path / 'runs')!r}])\n"
        "heavy = {'tensorflow', 'jax', 'keras', 'gymnasium', 'ale_py'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["ok"]
    checks = {finding["check"] for finding in report["findings"]}
    assert checks >= {"python", "cores", "disk", "backend", "environment"}
    assert not (tmp_path / "runs").exists()  # it looks and leaves nothing
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_fails_with_the_code_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        (taken,) = machine_checks.ports(None, [port])
        (metrics,) = machine_checks.ports(experiment(f"learner.metrics_port={port}"), [])
    assert (taken.level, taken.code) == ("fail", ExitCode.BIND)
    assert str(port) in taken.message
    assert "learner.metrics_port" in metrics.message
    (free,) = machine_checks.ports(None, [port])
    assert free.level == "ok"
    (same,) = machine_checks.ports(
        experiment("learner.metrics_port=9000", "actor.metrics_port=9000"), []
    )
    assert same.level == "warn"


def test_an_environment_that_does_not_step() -> None:
    (finding,) = part_checks.environments(experiment("environment.id=NoSuch-v1"))
    assert (finding.level, finding.code) == ("fail", ExitCode.ENVIRONMENT)
    assert "NoSuch" in finding.message


def test_a_broken_backend_counts_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorflow", "jax", "keras"):
        (tmp_path / name).mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("__version__ = '3'")
    (tmp_path / "jax" / "__init__.py").write_text("raise ImportError('libtpu.so: not found')")
    (tmp_path / "tensorflow" / "__init__.py").write_text("import nosuch_part")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    tensorflow, jax = part_checks.backends(experiment("learner.backend=jax"))
    assert (jax.level, jax.code) == ("fail", ExitCode.BACKEND)
    assert "libtpu.so" in jax.message
    assert tensorflow.level == "ok"  # not installed, and not wanted
    findings = list(part_checks.backends(None))
    assert [finding.level for finding in findings] == ["ok", "warn", "warn"]
    assert "only actors" in findings[-1].message


def test_a_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stand-in, since no machine has every device, and importing the real ones takes long.
    for name in ("tensorflow", "jax", "keras"):
        (tmp_path / name).mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("__version__ = '3'")
    (tmp_path / "tensorflow" / "__init__.py").write_text("import nosuch_part")
    (tmp_path / "jax" / "__init__.py").write_text(
        "__version__ = '1'\nclass Cpu: platform = 'cpu'\ndef devices(): return [Cpu()]"
    )
    (tmp_path / "jax" / "numpy.py").write_text("import numpy\nones = numpy.ones")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    wanted = experiment("learner.backend=jax", "learner.device=tpu")
    (finding,) = (f for f in part_checks.backends(wanted) if f.level == "fail")
    assert "jax 1 with Keras 3, on cpu; learner.device is 'tpu'" in finding.message
    wanted = experiment("learner.backend=jax", "learner.device=cpu")
    assert {f.level for f in part_checks.backends(wanted)} == {"ok"}


def test_what_hangs_or_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert part_checks._json_of(crash) == (None, "its process was killed by signal 11")
    assert part_checks._json_of("raise OSError('no disk')") == (None, "OSError: no disk")
    monkeypatch.setattr(part_checks, "_PROCESS_S", 0.2)
    hangs = "import threading; threading.Event().wait(60)"
    assert part_checks._json_of(hangs) == (None, part_checks._SLOW)


def test_cores_name_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, busy = machine_checks.cores(
        experiment("actor.processes=300", "actor.envs_per_group=1", "actor.threads=4")
    )
    assert "= 1200 threads" in busy.message
    *_, busy = machine_checks.cores(
        experiment("actor.processes=300", "actor.envs_per_group=1", "actor.workers=1")
    )
    assert "actor.processes 300 x actor.workers 1 = 300 workers" in busy.message
    monkeypatch.setattr(machine_checks, "usable_cpus", lambda: 0.5)
    (limited,) = machine_checks.cores(None)
    assert limited.level == "warn"
    assert "0.5 cores usable" in limited.message


def test_disk_and_python() -> None:
    assert next(machine_checks.python((3, 10))).level == "fail"
    readonly = next(machine_checks.disk(Path("/proc/self/nosuch/runs")))
    assert (readonly.level, readonly.code) == ("fail", ExitCode.RUN_DIRECTORY)


def test_where_bfloat16_gains(tmp_path: Path) -> None:
    """A CPU with its instructions and TensorFlow, a new GPU, a TPU."""

    def finding(*settings: str, flags: str = "avx2", capability: float = 0.0) -> Any:
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.write_text(f"processor : 0\nflags\t\t: fpu {flags} sse\n")
        wanted = experiment(*settings) if settings else None
        check = precision_check.precision(wanted, cpuinfo, tmp_path / "dev", capability)
        (only,) = check
        return only

    bfloat16, jax = "learner.precision=bfloat16", "learner.backend=jax"
    assert "gains nothing here" in finding().message
    assert finding().level == "ok"
    assert finding(bfloat16).level == "warn"
    assert finding(bfloat16, flags="avx512_bf16").level == "ok"
    assert "CPU with avx512_bf16" in finding(flags="avx512_bf16").message
    assert "with JAX on a CPU" in finding(bfloat16, jax, flags="amx_bf16").message
    assert finding(bfloat16, capability=7.5).level == "warn"
    assert "capability 9" in finding(bfloat16, jax, capability=9.0).message
    refused = finding("learner.precision=tensorfloat32", flags="avx512_bf16")
    assert (refused.level, refused.code) == ("fail", ExitCode.BACKEND)
    assert finding("learner.precision=tensorfloat32", capability=8.0).level == "ok"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    assert "a TPU" in finding(bfloat16, jax).message


def test_a_small_disk(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        finding = next(machine_checks.disk(tmp_path))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert (finding.level, finding.code) == ("fail", ExitCode.CHECKPOINT_WRITE)


def test_the_report_says_what_to_do_and_the_verdict() -> None:
    text = lines(
        [
            ("disk", Finding("ok", "9 GiB free")),
            ("memory", Finding("warn", "little", "raise it")),
            ("ports", Finding("fail", "taken", "choose another", ExitCode.BIND)),
        ],
        "this machine can run it",
        "this machine cannot run it yet",
    )
    assert text == [
        "ok    disk    9 GiB free",
        "warn  memory  little",
        "              -> raise it",
        "FAIL  ports   taken",
        "              -> choose another",
        "this machine cannot run it yet: 1 FAIL, 1 warn",
    ]


def test_a_check_that_cannot_be_done_does_not_hide_the_others() -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("a defect")

    (finding,) = check_machine._guarded(broken)
    assert (finding.level, finding.code) == ("fail", ExitCode.INTERNAL)
    assert "a defect" in finding.message
