"""`seedbed train --learners 3` as real processes: one learner is killed with -9 in mid-run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedbed.rpc import channels
from seedbed.v1.gossip_pb2_grpc import GossipStub
from tests.support.processes import START_S, Cluster, Process, cluster, parent
from tests.support.waiting import wait_for

SMALL = (
    "actor.processes=1",
    "actor.groups=1",
    "actor.envs_per_group=2",
    "learner.batch_size=2",
    "gossip.deadline_s=4",
    "gossip.distance_every=1",
    "gossip.snapshot_every_s=1",
)


def status(it: Cluster, rank: int) -> dict[str, Any]:
    try:
        return dict(json.loads((it.run / f"learner-{rank}" / "status.json").read_text()))
    except (OSError, ValueError):
        return {}


def number(it: Cluster, rank: int, name: str) -> float:
    return float(status(it, rank).get("numbers", {}).get(name) or 0)


def updates(it: Cluster, rank: int) -> int:
    return int(status(it, rank).get("counters", {}).get("updates", 0))


def goes_on(it: Cluster, by: Process, *ranks: int) -> None:
    """Wait until these learners have made more updates."""
    before = {rank: updates(it, rank) for rank in ranks}
    for rank in ranks:

        def more(rank: int = rank) -> bool:
            by.runs()
            return updates(it, rank) > before[rank] + 20

        wait_for(more, f"learner {rank} goes on: {by.said}", START_S)


def events(it: Cluster, rank: int) -> list[list[str]]:
    text = (it.run / f"learner-{rank}" / "gossip" / "events.csv").read_text()
    return [line.split(",") for line in text.splitlines()[1:]]


@pytest.mark.slow
def test_one_of_three_is_killed_and_comes_back(tmp_path: Path) -> None:
    with cluster(tmp_path, *SMALL) as it:
        run = it.train("--learners", "3")

        def all_mix() -> bool:
            run.runs()
            return all(number(it, rank, "gossip_mixes") > 3 for rank in range(3))

        wait_for(all_mix, f"all mix: {run.said}", START_S)
        victim = status(it, 1)["process"]["pid"]
        assert parent(victim) in run.children()  # its guard
        os.kill(victim, signal.SIGKILL)

        # The socket of a learner serves no process without the key of a rank.
        with channels.channel(f"unix:{it.run}/learner-0/gossip.sock") as channel:
            with pytest.raises(grpc.RpcError) as refused:
                list(GossipStub(channel).Push(iter([]), timeout=20))
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert {file.stat().st_mode & 0o777 for file in it.run.glob("rank-keys/*")} == {0o600}

        # The others never stop: while it is away, and while it is being started again.
        goes_on(it, run, 0, 2)

        def back() -> dict[str, Any] | None:
            run.runs()
            found = status(it, 1)
            new = found.get("process", {}).get("pid") not in (None, victim)
            return found if new and number(it, 1, "gossip_mixes") > 3 else None

        found = wait_for(back, f"it is back and mixes: {run.said}", START_S)
        assert parent(found["process"]["pid"]) in run.children()
        goes_on(it, run, 0, 1, 2)

        def all_alive() -> bool:
            return all(number(it, rank, "gossip_peers_alive") == 3 for rank in range(3))

        wait_for(all_alive, f"each has heard both others: {run.said}", START_S)

        # It took a peer's parameters before it pushed, and no version is used twice.
        kinds = [row[1] for row in events(it, 1)]
        again = kinds.index("start", 1)
        assert kinds[again + 1] == "adopt"
        versions = [int(row[2]) for row in events(it, 1) if row[1] == "update"]
        assert versions == sorted(set(versions))
        # The others have started once.
        assert [sum(row[1] == "start" for row in events(it, r)) for r in range(3)] == [1, 2, 1]
        # Its consensus distance is small again: as near to its in-peer as the others to theirs.
        far = [number(it, rank, "gossip_distance_max") for rank in range(3)]
        assert 0 < far[1] < 10 * max(far[0], far[2])

        run.send(signal.SIGTERM)
        assert run.wait() == 0
        summary = run.summary()
        assert len(summary["learners"]) == 3
        assert summary["env_frames"] == sum(one["env_frames"] for one in summary["learners"])
        wait_for(lambda: parent(found["process"]["pid"]) is None, "nothing is left behind")

        # Some resume, and one that has lost everything begins with a peer's parameters.
        lost = it.run / "learner-2"
        lost.rename(tmp_path / "lost")
        before = [updates(it, rank) for rank in range(2)]
        second = it.train("--learners", "3")
        wait_for(lambda: updates(it, 2) > 0, f"all train: {second.said}", START_S)
        goes_on(it, second, 0, 1, 2)
        assert all(updates(it, rank) > before[rank] for rank in range(2))
        assert updates(it, 2) < before[0], "it counts its own updates"
        assert [row[1] for row in events(it, 2)][:2] == ["start", "adopt"]
        second.send(signal.SIGTERM)
        assert second.wait() == 0


@pytest.mark.slow
def test_one_that_diverged_is_started_again_once(tmp_path: Path) -> None:
    """With a peer's parameters. The other one does not stop for it."""
    poison = tmp_path / "poison"
    with cluster(
        tmp_path,
        *SMALL,
        "agent=a2c",
        "learner.unroll_length=5",
        "environment.id=tests.support.faulty_environments:ExplodesOnce",
        "environment.max_abs_reward=3.4e38",
        "learner.max_skipped_updates=1",
        f"environment.kwargs={{file: {poison}}}",
    ) as it:
        run = it.train("--learners", "2")
        goes_on(it, run, 0, 1)
        before = [status(it, rank)["process"]["pid"] for rank in range(2)]

        def diverged() -> int:
            return run.said.count("has diverged, and no peer has got its parameters")

        poison.touch()
        wait_for(diverged, f"one starts again: {run.said}", START_S)
        sick = 0 if "learner 0 has diverged" in run.said else 1
        wait_for(lambda: status(it, sick)["process"]["pid"] != before[sick], "again", START_S)
        goes_on(it, run, 0, 1)
        assert status(it, 1 - sick)["process"]["pid"] == before[1 - sick]
        kinds = [row[1] for row in events(it, sick)]
        assert kinds[kinds.index("start", 1) + 1] == "adopt"
        # Whichever meets it next: at the latest at the third time one has for the second time.
        for times in (1, 2):
            if run.popen.poll() is None:
                poison.touch()
                wait_for(
                    lambda: run.popen.poll() is not None or diverged() > times,  # noqa: B023
                    run.said,
                    START_S,
                )
        assert run.wait() == 42


@pytest.mark.slow
def test_all_reduce_meets_again_after_a_kill(tmp_path: Path) -> None:
    """No learner goes on alone: all are started again, and those behind catch up."""
    with cluster(
        tmp_path, *SMALL, "gossip.topology=allreduce", "agent=a2c", "learner.unroll_length=5"
    ) as it:
        run = it.train("--learners", "2")
        wait_for(lambda: updates(it, 1) > 20, f"both train: {run.said}", START_S)
        victim = status(it, 1)["process"]["pid"]
        os.kill(victim, signal.SIGKILL)
        wait_for(
            lambda: "PEERS_UNREACHABLE" in run.said,
            "the other one reports which it misses",
            START_S,
        )
        wait_for(lambda: status(it, 1).get("process", {}).get("pid") != victim, "again", START_S)
        goes_on(it, run, 0, 1)
        run.send(signal.SIGTERM)
        assert run.wait() == 0
        found = [one["updates"] for one in run.summary()["learners"]]
        assert abs(found[0] - found[1]) <= 1, "they are at the same update"


@pytest.mark.slow
def test_hogwild_goes_on_after_kills(tmp_path: Path) -> None:
    """Without a worker the shared copy goes on. Without the shared copy the others wait for it,
    and go on from its checkpoint.
    """
    with cluster(
        tmp_path,
        *SMALL,
        "gossip.topology=hogwild",
        "gossip.deadline_s=60",
        "learner.checkpoint.every_s=1",
        "agent=a2c",
        "learner.unroll_length=5",
    ) as it:
        run = it.train("--learners", "2")
        wait_for(lambda: updates(it, 1) > 20, f"both train: {run.said}", START_S)
        shared, worker = (status(it, rank)["process"]["pid"] for rank in range(2))
        os.kill(worker, signal.SIGKILL)
        goes_on(it, run, 0)
        goes_on(it, run, 1)
        assert status(it, 0)["process"]["pid"] == shared
        worker = status(it, 1)["process"]["pid"]
        before = updates(it, 0)
        os.kill(shared, signal.SIGKILL)
        wait_for(lambda: status(it, 0).get("process", {}).get("pid") != shared, "again", START_S)
        goes_on(it, run, 0, 1)
        assert updates(it, 0) > before / 2, "from the checkpoint, not from the beginning"
        run.send(signal.SIGTERM)
        assert run.wait() == 0
        assert len(run.summary()["learners"]) == 2


@pytest.mark.slow
def test_a_rank_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path, "gossip.replicas=2", "gossip.addresses=['h0:1','h1:1']") as it:
        refused = it.start("learner", "--rank", "2", "--run-dir", str(it.run))
        assert refused.wait() == 10
        assert "rank 2: gossip.replicas is 2, so the ranks are 0 to 1" in refused.said


def test_a_wrong_graph_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with cluster(tmp_path, "gossip.graphs=[[[0,1]]]") as it:
        refused = it.train("--learners", "2")
        assert refused.wait() == 10
        assert "nothing that learner 1 sends ever reaches learner 0" in refused.said
        assert not (it.run / "learner-0").exists()
