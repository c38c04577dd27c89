"""Log of a learner's gossip: rows, snapshots at their time, a bounded number of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.gossip import gossip_log as module
from seedbed.gossip.gossip_log import MAX_FILES, BoundedSnapshots, GossipLog
from seedbed.gossip.transport.buffers import Message


def flat(value: float) -> Any:
    return np.full(3, value, np.float32)


def opened(folder: Path, every_s: float, learners: int, at: float = 0) -> GossipLog:
    """A log whose learner has parameters already."""
    log = GossipLog(folder, every_s, learners)
    log._params, log._scratch = flat(at), flat(0)
    return log


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of now, to be set."""
    now = [1000.5]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def test_a_snapshot_is_of_its_time_exactly(tmp_path: Path, clock: list[float]) -> None:
    """Number C is what the parameters were at C * every_s: as the last event before left them."""
    log = opened(tmp_path, 10.0, 3)
    log.on_update(flat(1), 1, 1005.0)
    log.on_update(flat(2), 2, 1009.9)
    assert not list(tmp_path.glob("snapshot-*"))
    # The first event after 1010.
    log.on_mix(flat(5), 2, [Message(1, 7, flat(9))], [0.5], 1010.1)
    (found,) = tmp_path.glob("snapshot-*.npy")
    assert found.name == "snapshot-000000000101.npy"
    np.testing.assert_array_equal(np.load(found), flat(2))
    log.on_update(flat(6), 3, 1011.0)
    assert len(list(tmp_path.glob("snapshot-*"))) == 1
    log.on_update(flat(7), 4, 1042.0)  # nothing has happened since 1011
    np.testing.assert_array_equal(np.load(tmp_path / "snapshot-000000000104.npy"), flat(6))


def test_rows_are_those_of_the_report(tmp_path: Path, clock: list[float]) -> None:
    log = GossipLog(tmp_path, 0, 3)
    log.on_start(flat(0), 0)
    log.on_adopt(Message(2, 41, flat(1)), 0)
    log.on_update(flat(1) + np.array([0.25, 0, 0], np.float32), 1, 1001.25)
    messages = [Message(0, 3, flat(1)), Message(2, 42, flat(1))]
    log.on_mix(flat(2), 1, messages, [0.25, 0.5], 1001.5)
    log.on_graph(1, [0, 2], is_disconnected=True)
    assert (tmp_path / "events.csv").read_text().splitlines() == [
        "time,kind,iteration,norm,mixed",
        "1000.5,start,0,,",
        "1000.5,adopt,0,,2@41*1",
        "1001.25,update,1,0.25,",
        "1001.5,mix,1,,0@3*0.25 2@42*0.5",
        "1000.5,graph,1,void,0 2",
    ]


def test_a_killed_process_leaves_half_a_row(tmp_path: Path) -> None:
    opened(tmp_path, 0, 3).on_update(flat(1), 7, 1.0)
    with (tmp_path / "events.csv").open("a") as file:
        file.write("2.0,upda")
    again = GossipLog(tmp_path, 0, 3)
    assert again.last_iteration == 7, "versions go on from there"
    again.on_start(flat(1), 7)
    lines = (tmp_path / "events.csv").read_text().splitlines()
    assert len(lines) == 3
    assert all(line.count(",") == 4 for line in lines)


def test_at_most_so_many_are_kept_and_all_learners_keep_the_same(tmp_path: Path) -> None:
    kept = []
    for name, first in (("a", 0), ("b", 37)):
        folder = tmp_path / name
        folder.mkdir()
        thinned = BoundedSnapshots(folder, "snapshot")
        for number in range(first, 5 * MAX_FILES):
            thinned.write(number, flat(number))
        kept.append({path.name for path in folder.iterdir()})
        assert len(kept[-1]) <= MAX_FILES
    assert len(kept[0] & kept[1]) > MAX_FILES / 3
    again = BoundedSnapshots(tmp_path / "a", "snapshot")
    assert again.step > 1, "after a restart too"


def test_a_full_volume_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = opened(tmp_path, 1.0, 3)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    log._events.write = full  # type: ignore[method-assign]
    log.on_update(flat(1), 1, 1.0)
    log.on_update(flat(2), 2, 2.0)
    said = [record.message for record in caplog.records if "recorded" in record.message]
    assert len(said) == 1
    assert "No space left" in said[0]


def test_records_of_another_number_of_learners_are_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "gossip"
    opened(folder, 0, 3).on_update(flat(1), 7, 1.0)
    assert GossipLog(folder, 0, 3).last_iteration == 7
    assert GossipLog(folder, 0, 2).last_iteration == 0
    assert GossipLog(folder, 0, 4).last_iteration == 0
    assert "update,7" in (tmp_path / "gossip.1" / "events.csv").read_text()
    assert (tmp_path / "gossip.2" / "learners").read_text() == "2 0\n"
    assert GossipLog(folder, 5.0, 4).last_iteration == 0
    assert (tmp_path / "gossip.3").exists(), "snapshots are numbered by their times"
