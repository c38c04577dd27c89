"""What cannot change in a release: claims of volumes, compared as the API server stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api_server import ApiServer, api_server
from tests.support.chart import CHART, NO_METER, SHARDS, Rendered, merged, refused, render, run

# As the API server stores a quantity.
CANONICAL = {
    "1024Gi": "1Ti",
    "1024Mi": "1Gi",
    "1.5Gi": "1536Mi",
    "1e9": "1G",
    1e9: "1G",
    1073741824.0: "1Gi",
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def learner_with(**persistence: Any) -> dict[str, Any]:
    return {"learner": {"persistence": persistence}}


def shards_with(**persistence: Any) -> dict[str, Any]:
    return merged(SHARDS, {"replay": {"persistence": persistence}})


def install(server: ApiServer, values: dict[str, Any]) -> None:
    """Install, and store sizes as the API server does."""
    for item in server.upgrade(values).of("StatefulSet"):
        for claim in server.objects["StatefulSet", item["metadata"]["name"]]["spec"].get(
            "volumeClaimTemplates", []
        ):
            amounts = claim["spec"]["resources"]["requests"]
            amounts["storage"] = CANONICAL.get(amounts["storage"], amounts["storage"])


def refusal(server: ApiServer, values: dict[str, Any]) -> str:
    """What an upgrade to these values says."""
    with pytest.raises(AssertionError) as caught:
        server.render(values)
    return str(caught.value)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("of", "size"), [*((learner_with, size) for size in CANONICAL), (shards_with, "1024Mi")]
)
def test_a_size_is_an_amount(server: ApiServer, of: Any, size: str | float) -> None:
    install(server, of(size=size))
    server.render(of(size=size))
    said = refusal(server, of(size="3Gi"))
    assert "persistence cannot change in a release" in said
    assert f"a volume of {CANONICAL[size]}" in said
    assert "3Gi" in said


@pytest.mark.slow
@pytest.mark.parametrize("of", [learner_with, shards_with])
def test_a_storage_class_stays(server: ApiServer, of: Any) -> None:
    install(server, of(storageClass="fast"))
    server.render(of(storageClass="fast"))
    said = refusal(server, of(storageClass="slow"))
    assert 'storage class "fast"' in said
    assert 'storage class "slow" is wanted' in said
    assert 'storage class ""' in refusal(server, of())


@pytest.mark.slow
def test_a_volume_neither_goes_nor_comes(server: ApiServer) -> None:
    install(server, {})
    bucket = learner_with(type="gcsfuse", bucket="b")
    assert "a volume of 10Gi" in refusal(server, bucket)
    assert "none is wanted" in refusal(server, learner_with(existingClaim="mine"))


@pytest.mark.slow
def test_sequences_of_a_shard_stay(server: ApiServer) -> None:
    install(server, SHARDS)
    said = refusal(server, merged(SHARDS, {"replay": {"sequences": 4_000}}))
    assert "replay.sequences cannot change in a release: its shards have 3000 each" in said
    assert "4000 are wanted" in said


def test_a_claim_of_ones_own() -> None:
    rendered = render(learner_with(existingClaim="mine")).one("StatefulSet", "pong-learner")
    assert "volumeClaimTemplates" not in rendered["spec"]
    (volume,) = (v for v in rendered["spec"]["template"]["spec"]["volumes"] if v["name"] == "runs")
    assert volume["persistentVolumeClaim"] == {"claimName": "mine"}
    shared = merged(learner_with(existingClaim="mine"), {"learner": {"replicas": 2}})
    (container,) = render(shared).pods()["pong-learner"]["spec"]["containers"]
    assert "--run-dir=/runs/pong/learner-$(SEEDBED_RANK)" in container["args"]
    assert "existingClaim" in refused(learner_with(type="none", existingClaim="mine"))


def test_the_only_copy_of_a_result_is_not_thrown_away() -> None:
    said = refused(learner_with(type="none"))
    assert "the only copy of the result" in said
    assert "checkpoints: gs://BUCKET/PATH" in said
    render(merged(learner_with(type="none"), NO_METER))
    render(learner_with(type="none", checkpoints="gs://b/p"))


def test_names_that_begin_with_a_digit() -> None:
    for version, fits in (("1.33.0", False), ("1.35.4-gke.100", False), ("1.36.0", True)):
        answer = run("template", "2026-pong", str(CHART), f"--kube-version={version}")
        assert (answer.returncode == 0) is fits, answer.stderr
        assert fits or "begins with a digit" in answer.stderr


def test_names_of_the_whole_cluster_are_of_one_release() -> None:
    values: dict[str, Any] = {"cost": {"readNodes": True}, "learner": {"replicas": 2}}
    kinds = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy")
    names: list[tuple[str, str]] = []
    for namespace, release in (("rl", "x-pong"), ("rl-x", "pong")):
        answer = run("template", release, str(CHART), "--namespace", namespace, values=values)
        rendered = Rendered(answer.stdout)
        names += [(kind, x["metadata"]["name"]) for kind in kinds for x in rendered.of(kind)]
    assert len(names) == len(set(names)) == 6


@pytest.mark.slow
def test_a_claim_of_ones_own_stays(server: ApiServer) -> None:
    install(server, learner_with(existingClaim="mine"))
    said = refusal(server, learner_with(size="5Gi"))
    assert "it has no volume of its own, and 5Gi" in said
    assert "Leave it as it is, or install another release" in said
    assert "kubectl edit pvc" not in said
