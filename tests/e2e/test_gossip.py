"""Several learners on a real cluster: spread, killed, scaled, ended. `make e2e`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.e2e.release import Release, command, connects, values
from tests.support.chart import merged

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

RANKS = range(3)
LABELS = {"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/instance": "trio"}


def three(**more: Any) -> dict[str, Any]:
    """Three learners that gossip, and an actor of two groups for each of them."""
    small = {"learner": {"replicas": 3}, "actor": {"replicas": 3}}
    return merged(merged(values(), small), more)


def told(release: Release, rank: int) -> dict[str, Any] | None:
    """A learner's own word."""
    return release.on_loopback(f"learner-{rank}", 9090)


def counter(release: Release, rank: int, name: str) -> int:
    """One of a learner's, -1 while it does not answer."""
    status = told(release, rank)
    return int(status["counters"][name]) if status else -1


def metric(release: Release, rank: int, name: str) -> dict[str, float]:
    """A learner's samples of a metric, by peer where it has peers; {} while it does not answer."""
    found = samples(release, f"learner-{rank}", 9090)
    return {one.labels.get("peer", ""): one.value for one in found if one.name == name}


def samples(release: Release, pod: str, port: int) -> list[Sample]:
    """Return the samples of all metrics of a pod; [] while it does not answer."""
    text = release.http(pod, port, "metrics") or ""
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def total(release: Release, rank: int, name: str) -> float:
    """The sum of those, -1 while there are none."""
    found = metric(release, rank, name)
    return sum(found.values()) if found else -1


def streams(release: Release) -> list[float]:
    return [total(release, rank, "seedbed_sessions") for rank in RANKS]


def alive(release: Release) -> list[float]:
    return [total(release, rank, "seedbed_gossip_peers_alive") for rank in RANKS]


def grow(release: Release, ranks: range | list[int], look: Callable[[int], float]) -> None:
    """Wait until a number of each of these learners is larger than it is now."""
    release.until(lambda: all(look(rank) >= 0 for rank in ranks), f"{list(ranks)} answer")
    before = {rank: look(rank) for rank in ranks}
    release.until(lambda: all(look(rank) > before[rank] for rank in ranks), f"{before} grow")


@pytest.fixture
def trio(namespace: str, tmp_path: Path) -> Release:
    return Release("trio", namespace, tmp_path)


@pytest.mark.e2e_all
def test_three_learners_gossip_one_is_killed_and_all_end(trio: Release) -> None:
    tls = trio.certificates()
    assert "Learners: 3, topology gossip" in trio.install(three(tls=tls))
    trio.until(lambda: trio.ready("learner"), "all are ready")
    trio.until(lambda: streams(trio) == [2, 2, 2], "the actors are spread evenly")
    grow(trio, RANKS, lambda rank: counter(trio, rank, "updates"))
    grow(trio, RANKS, lambda rank: total(trio, rank, "seedbed_gossip_mixes_total"))
    for rank in RANKS:
        assert total(trio, rank, "seedbed_gossip_peers") == 3
        trio.until(lambda rank=rank: metric(trio, rank, "seedbed_gossip_distance"), "a distance")
    trio.until(lambda: alive(trio) == [3, 3, 3], "each sees all of them")
    trio.until(lambda: trio.priced("learner", 3), "they are priced")
    command("helm", "test", "trio", "-n", trio.namespace, "--timeout", "3m", timeout_s=240)

    # Only learners of the release reach each other.
    for labels, reaches in (
        ({}, False),
        ({**LABELS, "app.kubernetes.io/component": "actor"}, False),
        ({**LABELS, "app.kubernetes.io/component": "learner"}, True),
    ):
        assert connects(trio, labels, 8490) is reaches, labels

    # Their number is the graph's.
    said = trio.kubectl("scale", "statefulset/trio-learner", "--replicas=5", check=False)
    assert "5 learners were asked for, and the topology of trio has 3" in said
    assert trio.replicas("statefulset/trio-learner") == 3

    # One is killed: the others go on without it, and it comes back and takes part again.
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in trio.pods("learner")}
    frames = counter(trio, 1, "env_frames")
    trio.kill("learner", 1)
    grow(trio, [0, 2], lambda rank: counter(trio, rank, "updates"))
    trio.until(lambda: counter(trio, 1, "updates") > 0, "it has resumed")
    new = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in trio.pods("learner")}
    assert {name for name in old if old[name] != new[name]} == {"trio-learner-1"}
    assert counter(trio, 1, "env_frames") > frames / 4, "from its own volume"
    trio.until(lambda: streams(trio) == [2, 2, 2], "the actors are spread evenly again")
    grow(trio, RANKS, lambda rank: counter(trio, rank, "updates"))
    grow(trio, RANKS, lambda rank: total(trio, rank, "seedbed_gossip_mixes_total"))
    trio.until(lambda: alive(trio) == [3, 3, 3], "each sees all of them again")

    # Another key of its rank: that learner alone starts again, and the others take the key.
    old = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in trio.pods("learner")}
    remove = '-p=[{"op":"remove","path":"/data/learner-1"}]'
    trio.kubectl("patch", "secret", "trio-auth", "--type=json", remove)
    trio.kubectl("delete", "pod", "trio-learner-1")
    trio.until(lambda: counter(trio, 1, "updates") > 0, "it has resumed")
    trio.until(lambda: alive(trio) == [3, 3, 3], "each sees all of them with the new key")
    grow(trio, RANKS, lambda rank: total(trio, rank, "seedbed_gossip_mixes_total"))
    new = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in trio.pods("learner")}
    assert {name for name in old if old[name] != new[name]} == {"trio-learner-1"}

    # All of them are killed: each resumes from its own volume, and they find each other again.
    each = [counter(trio, rank, "env_frames") for rank in RANKS]
    trio.kill("learner", *RANKS)
    trio.until(lambda: all(counter(trio, rank, "updates") > 0 for rank in RANKS), "they resume")
    assert all(counter(trio, rank, "env_frames") > each[rank] / 4 for rank in RANKS)
    trio.until(lambda: streams(trio) == [2, 2, 2], "the actors are spread evenly once more")
    grow(trio, RANKS, lambda rank: counter(trio, rank, "updates"))
    grow(trio, RANKS, lambda rank: total(trio, rank, "seedbed_gossip_mixes_total"))

    # All end for one reason, which counts all of them, and the meter takes them to zero.
    frames = sum(counter(trio, rank, "env_frames") for rank in RANKS)
    over = {"stop": {"env_frames": frames + 5_000}, "evaluation": {"episodes": 2}}
    ending = three(experiment=over, tls=tls)
    trio.upgrade(ending)
    trio.until(lambda: trio.state().get("finished"), "it is finished")
    assert "stop.env_frames" in trio.state()["finished"]
    trio.until(lambda: trio.replicas("statefulset/trio-learner") == 0, "the learners at zero")
    trio.until(lambda: not trio.pods("learner") and not trio.pods("actor"), "their pods are gone")
    assert "The actors and the learners are at zero" in trio.upgrade(ending)
    assert trio.replicas("statefulset/trio-learner") == 0, "an upgrade starts nothing"
    # Whoever scales them up: they are held at zero.
    trio.scale("statefulset/trio-learner", 3)
    trio.until(lambda: trio.replicas("statefulset/trio-learner") == 0, "they leave again")
    trio.uninstall()
    trio.until(lambda: not trio.pods("learner"), "no pods")
    volumes = {item["metadata"]["name"] for item in trio.get("pvc")["items"]}
    assert volumes == {f"runs-trio-learner-{rank}" for rank in RANKS}


@pytest.mark.e2e_all
def test_learners_that_all_reduce_meet_again(namespace: str, tmp_path: Path) -> None:
    """Nobody goes on alone: the one that is left gives up, and both begin at the same update."""
    pair = Release("pair", namespace, tmp_path)
    more = {
        "experiment": {
            "agent": "a2c",
            "learner": {"unroll_length": 5},
            "gossip": {"deadline_s": 5},
        },
        "learner": {"replicas": 2, "topology": "allreduce"},
        "actor": {"replicas": 2},
    }
    assert "Learners: 2, topology allreduce" in pair.install(merged(values(), more))
    ranks = [0, 1]

    def together() -> bool:
        """Whether learner 1 is between two looks at learner 0."""
        found = [counter(pair, rank, "updates") for rank in (0, 1, 0)]
        return found[0] - 1 <= found[1] <= found[2] + 1

    grow(pair, ranks, lambda rank: counter(pair, rank, "updates"))
    pair.until(together, "they are at the same update")
    pair.kill("learner", 1)
    pair.until(
        lambda: any(
            status["restartCount"]
            for pod in pair.pods("learner")
            for status in pod["status"].get("containerStatuses", [])
        ),
        "the other one has given up",
    )
    grow(pair, ranks, lambda rank: counter(pair, rank, "updates"))
    pair.until(together, "they are at the same update")
    pair.uninstall()


@pytest.mark.e2e_all
def test_fewer_learners_take_no_frame_and_no_dollar_back(namespace: str, tmp_path: Path) -> None:
    quad = Release("quad", namespace, tmp_path)
    four = {"learner": {"replicas": 4}, "actor": {"replicas": 4}}
    quad.install(merged(values(), four))
    grow(quad, range(4), lambda rank: counter(quad, rank, "env_frames"))
    trained = sum(counter(quad, rank, "env_frames") for rank in range(4))
    looks = [(0.0, 0.0)]

    def billed() -> tuple[float, float]:
        """Frames and dollars of the release by its meter; each look is at least the last."""
        found = bill(quad)
        if found is not None:
            assert found[0] >= looks[-1][0], "frames"
            assert found[1] >= looks[-1][1], "dollars"
            looks.append(found)
        return looks[-1]

    quad.until(lambda: billed()[0] >= trained, "the frames of all four are counted")
    left = sum(counter(quad, rank, "env_frames") for rank in range(1, 4))
    one: dict[str, Any] = {"learner": {"replicas": 1}, "actor": {"replicas": 1}}
    refused = quad.upgrade(merged(values(), one), check=False)
    assert "gossip.replicas: 4 -> 1" in refused
    digest = refused.split("learner.acceptChange=")[1].split()[0]
    one["learner"]["acceptChange"] = digest
    quad.upgrade(merged(values(), one))
    quad.until(lambda: billed() and len(quad.pods("learner")) == 1, "three have left")
    mine = counter(quad, 0, "env_frames")
    quad.until(lambda: billed() and counter(quad, 0, "env_frames") > mine + 2000, "one goes on")
    now = billed()[0]
    assert now >= left + mine, "theirs stay counted"
    quad.until(lambda: billed()[0] > now, "and its own are added")
    quad.uninstall()


def bill(release: Release) -> tuple[float, float] | None:
    """Frames and dollars of a release by its meter; None while it does not answer."""
    pods = release.pods("cost")
    if not pods:
        return None
    meter = pods[0]["metadata"]["name"].removeprefix(f"{release.name}-")
    found = samples(release, meter, 9092)
    frames, dollars = (
        [one.value for one in found if one.name == name]
        for name in ("seedbed_cost_frames_total", "seedbed_cost_dollars_total")
    )
    return (sum(frames), sum(dollars)) if frames else None
