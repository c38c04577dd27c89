"""A full disk under a set: told before, no run starts without room, and what trains saves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from seedbed.runtime.exit_codes import ExitCode
from seedbed.sets.disk import describe_disk, shortage
from seedbed.sets.folder import Member, read_members
from tests.sets.test_driver import SMALL, frames
from tests.support.processes import START_S, Process
from tests.support.volume import MIB, mounted, put
from tests.support.waiting import wait_for


def test_the_disk_of_a_set_is_told_and_short_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 500 * MIB
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    members = [Member(tmp_path / f"{name}.yaml", {}) for name in "abc"]
    first = describe_disk(tmp_path / "not-there-yet", [], 3)
    assert "what a run takes is measured on the first that ends; 500 MiB free" in first
    assert "Where less than 50 MiB is free for each run at once, none trains" in first
    assert not shortage(tmp_path, members)

    put(members[0].run / "checkpoints" / "checkpoint-9.safetensors", 60 * MIB)
    put(members[0].run / "checkpoints" / "best" / "checkpoint-5.safetensors", 60 * MIB)
    (members[0].run / "summary.json").touch()
    assert "120 MiB a run, 240 MiB to come; 500 MiB free. " in describe_disk(tmp_path, members, 3)
    assert "600 MiB to come; 500 MiB free, which is more" in describe_disk(tmp_path, members, 6)
    free = 219 * MIB  # 2 × 60 of the first, and 50 of each other one
    assert "219 MiB free, and logs and checkpoints of 3 runs need 220 MiB" in (
        shortage(tmp_path, members)
    )
    assert not shortage(tmp_path, members[:2])


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """Return a volume of 160 MiB."""
    path = tmp_path / "volume"
    with mounted(path, 160) as can:
        if not can:
            pytest.skip("no volume can be mounted here")
        yield path


@pytest.mark.slow
def test_a_set_on_a_full_disk_saves_and_goes_on_later(tmp_path: Path, volume: Path) -> None:
    source, folder = tmp_path / "small.yaml", volume / "set"
    source.write_text(SMALL)
    words = ("sweep", str(source), "--seeds", "2", "--out", str(folder))
    long = (*words, "--set", "stop.env_frames=100000000")
    started = Process(tmp_path / "a", *long)
    index = folder / "set" / "runs.json"
    wait_for(lambda: started.runs() or index.exists(), f"a set: {started.said}", START_S)
    first, second = read_members(folder)
    wait_for(lambda: started.runs() or frames(first), f"a checkpoint: {started.said}", START_S)
    put(volume / "ballast", shutil.disk_usage(volume).free - 20 * MIB)
    assert started.wait() == ExitCode.RUN_DIRECTORY, started.said
    assert started.said.count("Stopping each run with a last checkpoint") == 1
    assert "20 MiB free, and logs and checkpoints of 1 run need 50 MiB" in started.said
    assert "ended by signal SIGTERM" in first.log.read_text()
    assert not second.has_begun
    saved = frames(first)

    full = Process(tmp_path / "b", *long)
    assert full.wait() == ExitCode.RUN_DIRECTORY, full.said
    assert ": resumes (" not in full.said
    assert ": begins (" not in full.said

    (volume / "ballast").unlink()
    end = f"stop.env_frames={saved + 1000}"
    last = Process(tmp_path / "c", *words, "--set", end)
    assert last.wait() == 0, last.said
    assert f"{first.name}: resumes" in last.said
    assert len(last.summary()["finished"]) == 2
    assert " MiB a run, " in last.said, "measured on the first that has ended"
