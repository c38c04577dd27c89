"""Replay shards on a real cluster: killed, left behind by their learner, scaled, ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.release import CHART, MINIMUM, Release, command, connects, with_shards
from tests.support.chart import merged

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_all, pytest.mark.timeout(1500)]

LABELS = {"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/instance": "kept"}


@pytest.fixture
def kept(namespace: str, tmp_path: Path) -> Release:
    return Release("kept", namespace, tmp_path)


def held(release: Release, shard: int) -> int:
    """How many sequences a shard has, -1 while it does not answer."""
    state = release.shard(shard)
    return int(state["size"]) if state else -1


def healthy(release: Release) -> float:
    return release.number("replay_healthy_shards") or 0


def uids(release: Release) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in release.pods("replay")}


def left_out(release: Release, shard: str) -> int:
    """How often the learner has said that it goes on without a shard."""
    said = release.kubectl("logs", f"{release.name}-learner-0").splitlines()
    return sum(f"replay shard {shard}" in line and "is left out" in line for line in said)


def test_shards_are_killed_left_behind_scaled_and_ended(kept: Release) -> None:
    assert "Replay: 2 shards of 50000 sequences" in kept.install(with_shards(2))
    kept.until(lambda: kept.ready("learner") and kept.ready("replay"), "all are ready")
    assert sorted(uids(kept)) == ["kept-replay-0", "kept-replay-1"]
    kept.until(lambda: kept.counter("updates") > 100, "training from the shards")
    kept.until(lambda: min(held(kept, 0), held(kept, 1)) > MINIMUM / 4, "both have something")
    kept.until(lambda: healthy(kept) == 2, "both are healthy")

    # A shard's pod is killed: the learner leaves it out, and training goes on. How long it is away
    # is the cluster's affair, and may be less than a look of ours takes.
    pods, before, said = uids(kept), held(kept, 1), left_out(kept, "kept-replay-1")
    kept.kill("replay", 1)
    kept.until(lambda: left_out(kept, "kept-replay-1") > said, "the learner saw it go")
    updates = kept.counter("updates")
    kept.until(lambda: kept.counter("updates") > updates + 20, "and goes on")
    kept.until(lambda: healthy(kept) == 2 and held(kept, 1) >= 0, "the shard is back")
    # Its contents are back with it, and are drawn.
    after = kept.shard(1)
    assert after is not None
    assert after["size"] >= before
    assert after["damaged"] == 0, "what was killed between two sequences is whole"
    kept.until(lambda: (kept.shard(1) or {"sampled": 0})["sampled"] > 0, "they are drawn")
    assert held(kept, 0) >= before // 2, "nobody else was touched"
    assert uids(kept)["kept-replay-0"] == pods["kept-replay-0"]

    # The learner's pod is deleted: it goes on from what the shards hold, without filling them anew.
    sizes = [held(kept, shard) for shard in (0, 1)]
    kept.kill("learner", 0)
    first = kept.until(
        lambda: (kept.number("updates_per_second") or 0) > 0 and kept.status(), "it trains"
    )
    assert first is not None
    assert first["numbers"]["replay_inserted_sequences"] < MINIMUM
    assert first["numbers"]["replay_sequences"] >= sum(sizes) > MINIMUM

    # Only the release's learner reaches a shard.
    for labels, port, reaches in (
        ({}, 8480, False),
        ({}, 9093, False),
        ({**LABELS, "app.kubernetes.io/component": "actor"}, 8480, False),
        ({**LABELS, "app.kubernetes.io/component": "learner"}, 8480, True),
    ):
        assert connects(kept, labels, port, to="replay") is reaches, (labels, port)

    # The meter prices them; an unrelated upgrade restarts none of them, and one more comes by
    # `helm upgrade`, which leaves the others what they have.
    kept.until(lambda: kept.priced("replay", 2), "both are priced")
    pods, sizes = uids(kept), [held(kept, shard) for shard in (0, 1)]
    more = with_shards(3, metrics={"interval": "30s"})
    said = kept.upgrade(more, check=False)
    assert "learner.replay.capacity: 100000 -> 150000" in said
    accept = {"acceptChange": said.partition("learner.acceptChange=")[2].split()[0]}
    kept.upgrade(merged(more, {"learner": accept}))
    kept.until(lambda: healthy(kept) == 3 and held(kept, 2) > 0, "a third shard fills")
    assert {name: uids(kept)[name] for name in pods} == pods
    assert all(held(kept, shard) >= sizes[shard] for shard in (0, 1))

    answer = command("helm", "upgrade", "kept", str(CHART), "-n", kept.namespace, "--reuse-values",
                     "--set", "replay.sequences=7000", check=False)  # fmt: skip
    assert "cannot change in a release: its shards have 50000 each, and 7000 are wanted" in answer

    # The end gives the shards back too; their volumes stay.
    frames = kept.counter("env_frames")
    over = {"stop": {"env_frames": frames + 1_000}, "evaluation": {"episodes": 2}}
    ending = with_shards(3, experiment=over, learner=accept)
    kept.upgrade(ending)
    kept.until(lambda: kept.state().get("finished"), "it is finished")
    kept.until(lambda: kept.replicas("statefulset/kept-replay") == 0, "the shards at zero")
    kept.until(lambda: not kept.pods("replay") and not kept.pods("learner"), "their pods are gone")
    assert "So are the replay shards" in kept.upgrade(ending)
    assert kept.replicas("statefulset/kept-replay") == 0, "an upgrade starts nothing"
    # A restart respects it: the learner needs no shard to say so, and leaves again.
    kept.scale("statefulset/kept-learner", 1)
    kept.until(lambda: kept.replicas("statefulset/kept-learner") == 0, "it leaves again")
    kept.uninstall()
    kept.until(lambda: not kept.pods("learner"), "no pods")
    volumes = {item["metadata"]["name"] for item in kept.get("pvc")["items"]}
    assert volumes == {"runs-kept-learner-0", *(f"replay-kept-replay-{i}" for i in range(3))}
