"""An accelerator that cannot be used is named, on machines that are folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from seedbed.config import load_experiment
from seedbed.launch import run_header
from seedbed.runs.directory import open_run_directory
from seedbed.runtime import accelerators


def machine(root: Path, *files: str) -> Path:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(accelerators, "distributions", lambda: found)


@pytest.mark.parametrize(
    ("files", "backend", "installed", "words"),
    [
        (["dev/nvidia0"], "tensorflow", "tensorflow", ["NVIDIA GPU", "make run DEVICE=gpu"]),
        (["proc/driver/nvidia/version"], "tensorflow", "tensorflow", ["[tensorflow-cuda]"]),
        (["dev/nvidia0"], "jax", "jax", ["JAX", "[jax-cuda]"]),
        (["dev/accel0"], "jax", "jax", ["TPU", "make run DEVICE=tpu", "[jax-tpu]"]),
        (["dev/accel0"], "tensorflow", "libtpu", ["make run DEVICE=tpu", "learner.backend jax"]),
    ],
)
def test_an_accelerator_without_its_libraries(
    files: list[str],
    backend: str,
    installed: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, installed)
    sentence = accelerators.unusable_accelerator(backend, machine(tmp_path, *files))
    assert sentence is not None
    assert [word for word in words if word not in sentence] == []


@pytest.mark.parametrize(
    ("files", "backend", "installed"),
    [
        ([], "tensorflow", "tensorflow"),
        (["dev/nvidiactl"], "tensorflow", "tensorflow"),
        (["dev/nvidia0"], "tensorflow", "nvidia-cudnn-cu12"),
        (["dev/nvidia0"], "jax", "jax-cuda13-plugin"),
        (["dev/nvidia0", "usr/local/cuda-12/lib64/libcudart.so.12"], "tensorflow", "tensorflow"),
        (["dev/accel0"], "jax", "libtpu"),
    ],
)
def test_nothing_is_said(
    files: list[str], backend: str, installed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, installed)
    assert accelerators.unusable_accelerator(backend, machine(tmp_path, *files)) is None


AVX2, AMX = "flags\t\t: fpu avx2", "flags\t\t: fpu avx2 amx_bf16"


@pytest.mark.parametrize(
    ("flags", "files", "backend", "device", "words"),
    [
        (AVX2, [], "tensorflow", "auto", "slower than float32"),
        (AVX2, [], "jax", "auto", "slower than float32"),
        (AVX2, ["dev/accel0"], "tensorflow", "auto", "slower than float32"),  # TensorFlow has none
        (AVX2, ["dev/nvidia0"], "tensorflow", "cpu", "slower than float32"),
        (AVX2, ["dev/nvidia0"], "tensorflow", "auto", None),
        ("Features\t: fp asimd", [], "tensorflow", "auto", "slower than float32"),
        ("flags\t\t: fpu avx512_bf16", [], "tensorflow", "auto", None),
        (AMX, [], "tensorflow", "auto", None),
        (AMX, [], "jax", "auto", "gains nothing with JAX"),
    ],
)
def test_where_bfloat16_is_no_faster(
    flags: str,
    files: list[str],
    backend: str,
    device: str,
    words: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, "nvidia-cudnn-cu12")
    machine(tmp_path, "proc/cpuinfo", *files)
    (tmp_path / "proc" / "cpuinfo").write_text(f"processor : 0\n{flags} sse\n")
    sentence = accelerators.slow_bfloat16(backend, device, tmp_path)
    assert (words in sentence) if words and sentence else words == sentence


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_header_tells_of_a_slow_precision(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_header, "slow_bfloat16", lambda *_: "it is slower")
    experiment = load_experiment("cartpole-vtrace", [f"learner.precision={precision}"])
    with open_run_directory(tmp_path / "run", experiment) as directory:
        text = run_header.header(experiment, directory)
    assert ("precision    it is slower" in text) == (precision == "bfloat16")


@pytest.mark.parametrize(("device", "is_said"), [("auto", True), ("cpu", False)])
def test_the_header_of_a_run_says_so(
    device: str, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_header, "unusable_accelerator", lambda _: "a GPU lies idle")
    experiment = load_experiment("cartpole-vtrace", [f"learner.device={device}"])
    with open_run_directory(tmp_path / "run", experiment) as directory:
        text = run_header.header(experiment, directory)
    assert ("accelerator  a GPU lies idle" in text) == is_said
