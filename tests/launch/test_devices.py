"""One accelerator for each learner of a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.launch.devices import place_of_rank


def machine(path: Path, *files: str) -> Path:
    for name in files:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).touch()
    return path


def test_learners_take_turns_over_the_gpus(tmp_path: Path) -> None:
    dev = machine(tmp_path, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
    places = [place_of_rank(rank, 3, "auto", {}, dev) for rank in range(3)]
    assert [place.environment for place in places] == [
        {"CUDA_VISIBLE_DEVICES": name} for name in ("0", "1", "0")
    ]
    assert [place.learners for place in places] == [2, 1, 2]
    assert places[2].text == "GPU 0 of 2, shared by 2"


def test_only_the_gpus_that_this_process_sees_are_given_out(tmp_path: Path) -> None:
    dev = machine(tmp_path, *(f"nvidia{i}" for i in range(4)))
    seen = {"CUDA_VISIBLE_DEVICES": "2,GPU-8f"}
    names = [place_of_rank(rank, 2, "gpu", seen, dev).environment for rank in range(2)]
    assert names == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "GPU-8f"}]


@pytest.mark.parametrize("files", [("accel0", "accel1"), ("vfio/vfio", "vfio/0", "vfio/1")])
def test_each_learner_has_a_tpu_chip_of_its_own(tmp_path: Path, files: tuple[str, ...]) -> None:
    place = place_of_rank(1, 2, "tpu", {}, machine(tmp_path, *files))
    assert place.environment["TPU_VISIBLE_CHIPS"] == "1"
    assert place.environment["TPU_PROCESS_BOUNDS"] == "1,1,1"


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_accelerators_nothing_is_set(tmp_path: Path, device: str) -> None:
    files = ("nvidia0",) if device == "cpu" else ()
    place = place_of_rank(1, 2, device, {}, machine(tmp_path, *files))
    assert (place.environment, place.learners) == ({}, 2)
