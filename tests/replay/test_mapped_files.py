"""The buffer in files: what survives, and what is refused."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.numbers import Bounds
from seedbed.replay import mapped_files
from seedbed.replay.mapped_files import FileBuffer, file_arrays, files_bytes, open_buffer
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from tests.support import replay_writer
from tests.support.processes import ROOT
from tests.support.replay_content import PACKED, SPEC, check_whole, chunk

ALL = (np.arange(400) + 0.5) / 400


def filled(directory: Path, capacity: int = 32, chunks: int = 6) -> FileBuffer:
    buffer = open_buffer(directory, SPEC, capacity, 0.7)
    for number in range(chunks):
        for stream_id in range(2):
            priority = np.array([1 + stream_id, 2 + number], np.float32)
            buffer.add(chunk(SPEC, stream_id, number, 2, priority))
    return buffer


def refusal(*arguments: Any) -> str:
    with pytest.raises(SeedbedError) as caught:
        open_buffer(*arguments)
    assert caught.value.code is ExitCode.REPLAY_FILES
    return str(caught.value)


def test_contents_and_priorities_are_back(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    keys = buffer.sample(ALL).keys
    buffer.update_priorities(keys[:1], np.array([9.0], np.float32))
    before = buffer.sample(ALL)
    check_whole(SPEC, before)
    buffer.close()
    again = open_buffer(tmp_path, SPEC, 32, 0.7)
    assert (again.corrupt, again.sampleable) == (0, buffer.sampleable)
    after = again.sample(ALL)
    np.testing.assert_array_equal(after.keys, before.keys)
    np.testing.assert_allclose(after.probability, before.probability)
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(after.arrays[name], array)
    assert again.ring.next_key == buffer.ring.next_key
    again.close()
    # Opening seals nothing anew: a second time nothing is damaged either.
    third = open_buffer(tmp_path, SPEC, 32, 0.7)
    assert third.corrupt == 0
    third.close()


def test_kill_9_at_any_moment_leaves_whole_sequences(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    capacity = 6 * replay_writer.ENVIRONMENTS + 5  # so that chunks cross the ring's end
    emptied = 0
    for turn in range(12):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.replay_writer",
                str(tmp_path),
                str(capacity),
                str(turn),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for _ in range(int(random.integers(10, 40))):
            assert process.stdout.readline()
        # Any moment, not only the one after it has said something.
        time.sleep(float(random.uniform(0, 0.004)))
        process.kill()
        process.wait()
        process.stdout.close()
        buffer = open_buffer(tmp_path, replay_writer.SPEC, capacity, 0.5)
        # Whatever the moment: empty items, and never corrupt ones.
        assert buffer.corrupt == 0
        emptied += buffer.ring.size < capacity
        assert capacity - buffer.ring.size <= replay_writer.ENVIRONMENTS
        assert buffer.sampleable > 0
        for stream_id, _, number in check_whole(replay_writer.SPEC, buffer.sample(ALL[::8])):
            assert stream_id <= turn
            assert number < 6
        buffer.close()
    assert emptied, "no kill came in the middle of an insertion: this test has shown nothing"


@pytest.mark.parametrize("name", sorted({path for path in file_arrays(SPEC) if path != "priority"}))
def test_damaged_bytes_are_found_and_counted(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    buffer = filled(tmp_path, chunks=7)
    size, sampleable = buffer.ring.size, buffer.sampleable
    buffer.close()
    path = tmp_path / f"{name}.bin"
    data = bytearray(path.read_bytes())
    row = len(data) // 32
    for item in (3, 17):
        data[item * row + row // 2] ^= 0x10
    path.write_bytes(data)
    again = open_buffer(tmp_path, SPEC, 32, 0.7)
    assert again.corrupt == 2
    assert again.ring.size == size - 2
    assert 0 < again.sampleable < sampleable
    assert "2 corrupt sequences are dropped" in caplog.text
    check_whole(SPEC, again.sample(ALL))
    again.add(chunk(SPEC, 5, 0, 2))  # and goes on
    again.close()
    third = open_buffer(tmp_path, SPEC, 32, 0.7)
    assert third.corrupt == 0, "what was dropped is gone"
    third.close()


def test_numbers_of_packed_observations_are_checked(tmp_path: Path) -> None:
    """Those that are floats: any byte may be in the rest."""
    buffer = open_buffer(tmp_path, PACKED, 32, 0.7)
    for number in range(6):
        added = chunk(PACKED, 0, number, 2)
        added.reward[:] = added.action[:] = added.previous_action[:] = 0
        added.flags[:] = 0
        added.frames[..., 30:38] = np.array([1e6, -1e6], np.float32).view(np.uint8)
        if number == 5:
            added.frames[1, 1, 34:38] = np.array([np.nan], np.float32).view(np.uint8)
        buffer.add(added)
    buffer.close()
    again = open_buffer(tmp_path, PACKED, 32, 0.7)
    assert again.spec == PACKED
    size = again.ring.size
    again.drop_wrong(Bounds())
    assert (again.corrupt, again.ring.size) == (1, size - 1)
    again.close()


def test_a_torn_priority_costs_no_sequence(tmp_path: Path) -> None:
    buffer = filled(tmp_path)
    sampleable = buffer.sampleable
    buffer.close()
    path = tmp_path / "priority.bin"
    priority = np.fromfile(path, np.float32)
    priority[5] = np.nan
    priority.tofile(path)
    again = open_buffer(tmp_path, SPEC, 32, 0.7)
    assert (again.corrupt, again.sampleable) == (0, sampleable)
    assert np.isfinite(again.total_priority)
    again.close()


def test_another_spec_or_size_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    filled(tmp_path).close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    said = refusal(tmp_path, replace(SPEC, steps=5), 32, 0.7)
    assert "32 sequences of 3 + 4 + 1 steps" in said
    assert "32 sequences of 3 + 5 + 1 steps" in said
    assert "name another directory, or delete this one" in said
    said = refusal(tmp_path, SPEC, 33, 0.7)
    assert "holds 32 sequences" in said
    assert "hold 33 sequences" in said
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_without_their_description_are_left_alone(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "replay.json").unlink()
    before = (tmp_path / "frames.bin").read_bytes()
    assert "replay.json is not" in refusal(tmp_path, SPEC, 32, 0.7)
    assert (tmp_path / "frames.bin").read_bytes() == before


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 99}', "\x00\x00"])
def test_a_damaged_description_is_an_error(tmp_path: Path, text: str) -> None:
    filled(tmp_path).close()
    (tmp_path / "replay.json").write_text(text)
    assert "replay.json" in refusal(tmp_path, SPEC, 32, 0.7)


def test_a_cut_file_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path).close()
    os.truncate(tmp_path / "reward.bin", 100)
    assert "reward.bin has 100 bytes instead of" in refusal(tmp_path, SPEC, 32, 0.7)


def test_two_processes_on_one_volume(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.replay_writer", str(tmp_path), "64", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        said = refusal(tmp_path, replay_writer.SPEC, 64, 0.5)
        assert f"{tmp_path} is in use by process {process.pid} on" in said
    finally:
        process.kill()
        process.wait()
    open_buffer(tmp_path, replay_writer.SPEC, 64, 0.5).close()  # the lock went with the process


def test_a_volume_that_is_too_small(tmp_path: Path) -> None:
    said = refusal(tmp_path, SPEC, 10**12, 0.7)
    assert "has no room for 1000000000000 sequences" in said
    assert "hold at most" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_volume_that_fills_up_meanwhile(tmp_path: Path) -> None:
    """A real failure of posix_fallocate: no file of this process may become so large."""
    program = (
        "import sys; from pathlib import Path\n"
        "from seedbed.replay.mapped_files import open_buffer\n"
        "from resource import RLIMIT_FSIZE, setrlimit; setrlimit(RLIMIT_FSIZE, (65536, 65536))\n"
        "from tests.support.replay_content import SPEC\n"
        "try: open_buffer(Path(sys.argv[1]), SPEC, 1000, 0.7)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert answer.stdout.startswith(f"SeedbedError {tmp_path} has no room for"), answer
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC itself, put into posix_fallocate's mouth: a full volume is not to be had here."""
    real, calls = os.posix_fallocate, []

    def full(file: int, offset: int, size: int) -> None:
        calls.append(size)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, offset, size)

    monkeypatch.setattr(mapped_files.os, "posix_fallocate", full)
    assert "No space left on device" in refusal(tmp_path, SPEC, 1000, 0.7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]
    monkeypatch.undo()
    open_buffer(tmp_path, SPEC, 1000, 0.7).close()  # with room it goes


def test_files_take_what_was_said(tmp_path: Path) -> None:
    open_buffer(tmp_path, SPEC, 1000, 0.7).close()
    found = [path.stat() for path in tmp_path.glob("*.bin")]
    assert sum(stat.st_size for stat in found) == files_bytes(SPEC, 1000)
    # All chunks are there already: no later write can find the volume full.
    assert sum(512 * stat.st_blocks for stat in found) >= files_bytes(SPEC, 1000)


def test_one_killed_while_making_the_files_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(mapped_files.os, "posix_fallocate", killed)
        with pytest.raises(Killed):
            open_buffer(tmp_path, SPEC, 32, 0.7)
    buffer = filled(tmp_path)
    assert buffer.sampleable
    buffer.close()
