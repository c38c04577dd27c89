"""`seedbed doctor` finds what would stop a run, says what to do, and imports no backend itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.cli import doctor, doctor_machine, doctor_parts
from seedbed.cli.doctor_finding import Finding
from seedbed.config import Experiment, parse_experiment
from seedbed.runtime.exit_codes import ExitCode

ROOT = Path(__file__).parents[2]
GIB = 1 << 30


def experiment(*overrides: str) -> Experiment:
    return parse_experiment("name: x\nenvironment: {id: CartPole-v1}", overrides)


def test_a_whole_examination_imports_no_backend(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from seedbed.cli.main import main\n"
        f"code = main(['doctor', '--json', '--run-dir', {str(tmp_path / 'runs')!r}])\n"
        "heavy = {'tensorflow', 'jax', 'keras', 'gymnasium', 'ale_py'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["ok"]
    checks = {finding["check"] for finding in report["findings"]}
    assert checks >= {
        "python", "cores", "memory", "disk", "shm", "files", "clock", "grpc", "backend",
        "environment",
    }  # fmt: skip
    assert not (tmp_path / "runs").exists()  # it looks and leaves nothing
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_fails_with_the_code_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        (taken,) = doctor_machine.ports(None, [port])
        (metrics,) = doctor_machine.ports(experiment(f"learner.metrics_port={port}"), [])
    assert (taken.level, taken.code) == ("fail", ExitCode.BIND)
    assert str(port) in taken.message
    assert "learner.metrics_port" in metrics.message
    (free,) = doctor_machine.ports(None, [port])
    assert free.level == "ok"
    (same,) = doctor_machine.ports(
        experiment("learner.metrics_port=9000", "actor.metrics_port=9000"), []
    )
    assert same.level == "warn"


def test_an_environment_that_does_not_step() -> None:
    (finding,) = doctor_parts.environments(experiment("environment.id=NoSuch-v1"))
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
    tensorflow, jax = doctor_parts.backends(experiment("learner.backend=jax"))
    assert (jax.level, jax.code) == ("fail", ExitCode.BACKEND)
    assert "libtpu.so" in jax.message
    assert tensorflow.level == "ok"  # not installed, and not wanted
    findings = doctor_parts.backends(None)
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
    (finding,) = (f for f in doctor_parts.backends(wanted) if f.level == "fail")
    assert "jax 1 with Keras 3, on cpu; learner.device is 'tpu'" in finding.message
    wanted = experiment("learner.backend=jax", "learner.device=cpu")
    assert {f.level for f in doctor_parts.backends(wanted)} == {"ok"}


def test_what_hangs_or_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert doctor_parts._json_of(crash, [], {}) == (None, "its process was killed by signal 11")
    assert doctor_parts._json_of("raise OSError('no disk')", [], {}) == (None, "OSError: no disk")
    monkeypatch.setattr(doctor_parts, "_PROCESS_S", 0.2)
    hangs = "import threading; threading.Event().wait(60)"
    assert doctor_parts._json_of(hangs, [], {}) == (None, "no answer within 0.2 s")


def test_grpc_goes_round_over_both() -> None:
    assert [finding.level for finding in doctor_parts.grpc_loopback()] == ["ok", "ok"]


def test_cores_name_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = doctor_machine.cores(
        experiment("actor.processes=300", "actor.environments=1", "actor.threads=4")
    )
    assert "= 1200 threads" in findings[-1].message
    monkeypatch.setattr(doctor_machine, "usable_cpus", lambda: 0.5)
    (limited,) = doctor_machine.cores(None)
    assert limited.level == "warn"
    assert "0.5 cores usable" in limited.message


def test_memory_disk_files_and_python(tmp_path: Path) -> None:
    assert doctor_machine.memory(GIB)[0].level == "warn"
    assert doctor_machine.memory(2 * GIB)[0].level == "ok"
    assert doctor_machine.open_files(None, 512)[0].level == "ok"
    few = experiment("actor.environments=2")  # 1024 streams at most
    assert "ulimit -n 1536" in doctor_machine.open_files(few, 1024)[0].advice
    assert doctor_machine.shared_memory(tmp_path / "nosuch")[0].level == "warn"
    assert doctor_machine.python((3, 12))[0].level == "fail"
    assert doctor_machine.clock()[0].check == "clock"
    readonly = doctor_machine.disk(Path("/proc/self/nosuch/runs"))[0]
    assert (readonly.level, readonly.code) == ("fail", ExitCode.RUN_DIRECTORY)


def test_a_small_disk(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        finding = doctor_machine.disk(tmp_path)[0]
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert (finding.level, finding.code) == ("fail", ExitCode.CHECKPOINT_WRITE)


def test_the_report_says_what_to_do_and_the_verdict() -> None:
    text = doctor.lines(
        [
            Finding("disk", "ok", "9 GiB free"),
            Finding("memory", "warn", "little", "raise it"),
            Finding("ports", "fail", "taken", "choose another", ExitCode.BIND),
        ]
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

    (finding,) = doctor._guarded("disk", broken)
    assert (finding.level, finding.code) == ("fail", ExitCode.INTERNAL)
    assert "a defect" in finding.message
