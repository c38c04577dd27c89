"""Namespaces with rules, releases that share a volume, and what never starts."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.runtime.exit_codes import ExitCode
from tests.e2e.release import CHART, Release, command, new_namespace, until, values

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

DENY_ALL: dict[str, Any] = {
    "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}  # fmt: skip
QUOTA: dict[str, Any] = {
    "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cores"},
    "spec": {"hard": {"limits.cpu": "8"}},
}  # fmt: skip
SMALLEST: dict[str, Any] = {
    "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "smallest"},
    "spec": {"limits": [{"type": "Container", "min": {"cpu": "50m"}}]},
}  # fmt: skip
CLAIM: dict[str, Any] = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "200Mi"}}},
}  # fmt: skip


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    """One for each case, whose rules are no other's."""
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:6]
    with new_namespace(f"rules-{digest}") as name:
        yield name


def apply(release: Release, thing: dict[str, Any]) -> None:
    file = release.folder / "thing.json"
    file.write_text(json.dumps(thing))
    release.kubectl("apply", "-f", str(file))


def seedbed(*arguments: str) -> str:
    """What the command writes, however it ends."""
    return command(sys.executable, "-m", "seedbed", *arguments, check=False)


def test_plain_manifests_train_where_everything_is_denied(namespace: str, tmp_path: Path) -> None:
    """Without Helm nobody runs hooks; the name is not the release's."""
    release = Release("plain", namespace, tmp_path)
    apply(release, DENY_ALL)

    file = tmp_path / "values.json"
    file.write_text(json.dumps(values(fullnameOverride="plain")))
    text = command("helm", "template", "other", str(CHART), "-n", namespace, "-f", str(file),
                   "--no-hooks")  # fmt: skip
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(text)
    release.kubectl("apply", "-f", str(manifests))
    release.trains()
    assert release.get("secret", "plain-auth")["metadata"]["ownerReferences"]
    assert "plain works: 0 FAIL" in seedbed("check", "release", "plain", "-n", namespace)

    release.kubectl("create", "job", "--from=cronjob/plain-last-resort", "try")
    release.until(lambda: release.get("job", "try")["status"].get("succeeded"), "it has worked")
    assert time.time() - float(release.state()["lastResort"]) < 300

    release.kubectl("delete", "-f", str(manifests), "--wait=false")
    release.until(lambda: "NotFound" in release.kubectl("get", "secret", "plain-auth", check=False),
                  "the Secret goes with its owner")  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "words"),
    [(QUOTA, "must specify limits.cpu"), (SMALLEST, "minimum cpu usage per Container is 50m")],
)
def test_a_rule_that_no_pod_passes_is_named_by_deploy(
    rule: dict[str, Any], words: str, namespace: str, tmp_path: Path
) -> None:
    release = Release("ruled", namespace, tmp_path)
    apply(release, rule)
    begun = time.monotonic()
    said = seedbed("deploy", "cartpole-vtrace", f"--namespace={namespace}", "--release=ruled",
                   "--set", "image.tag=dev")  # fmt: skip
    assert " cannot make its pods: " in said
    assert words in said
    assert f"exit code {ExitCode.DEPLOY.value}" in said
    assert time.monotonic() - begun < 60, "30 s on a node with nothing else to do"
    assert words in seedbed("check", "release", "ruled", "-n", namespace)
    release.uninstall()


def test_two_releases_share_a_folder_of_checkpoints(namespace: str, tmp_path: Path) -> None:
    both = [Release(name, namespace, tmp_path) for name in ("one", "two")]
    apply(both[0], CLAIM)
    where = {"persistence": {"existingClaim": "shared", "checkpoints": "file:///runs/ck"}}
    for release in both:
        release.install(values(learner=where))
    for release in both:
        release.trains()
        release.until(lambda it=release: "owner.json" in it.kubectl(  # type: ignore[misc]
            "exec", f"{it.name}-learner-0", "--", "ls", f"/runs/ck/{namespace}/{it.name}/{it.name}"
        ), "its folder has an owner")  # fmt: skip
    # What is over is still another one's: no release goes on with it by chance.
    both[0].uninstall()
    both[1].upgrade(values(learner={**where, "run": "one"}))

    def said() -> str:
        words = ("logs", "two-learner-0", "--tail=20")
        return "".join(both[1].kubectl(*words, *more, check=False) for more in ((), ("-p",)))

    whose = f"/runs/one is the folder of the run {namespace}/one/one"
    both[1].until(lambda: whose in said(), "it is refused")
    both[1].uninstall()


def test_actors_wait_at_zero_for_a_learner_without_a_node(namespace: str, tmp_path: Path) -> None:
    release = Release("pending", namespace, tmp_path)
    nowhere = {"pod": {"nodeSelector": {"seedbed.test/nowhere": "true"}}}
    stop = {"experiment": {"stop": {"pending_s": 15}}}
    release.install(values(learner=nowhere, **stop))
    deployment = "deployment/pending-actor"
    release.until(lambda: release.replicas(deployment) == 0, "the actors go to zero")
    assert "pending-learner-0 has no node" in release.state()["waiting"]
    found = seedbed("check", "release", "pending", "-n", namespace)
    assert "pending-learner-0 waits for a node" in found
    assert "-> correct nodeSelector" in found
    release.upgrade(values(**stop))
    release.kubectl("delete", "pod", "pending-learner-0", "--wait=false")
    release.until(lambda: release.replicas(deployment) == 1, "they come back")
    release.trains()
    assert "waiting" not in release.state()
    release.uninstall()


@pytest.mark.e2e_all
def test_a_learner_that_no_restart_mends_is_paused(namespace: str, tmp_path: Path) -> None:
    release = Release("fatal", namespace, tmp_path)
    options = {"experiment": {"learner": {"network": "no_such_module:Net"}}}
    release.install(values(**options))
    until(lambda: "paused" in release.state(), "it is paused", 600)
    assert release.state()["paused"].startswith("exit code 10 (CONFIG) of fatal-learner-0")
    release.until(lambda: not release.pods("learner"), "its node is given back")
    release.uninstall()


# As Argo CD applies kinds, one after the other.
ARGO = (
    "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "Secret", "ConfigMap", "Role",
    "RoleBinding", "Service", "Deployment", "StatefulSet", "CronJob",
)  # fmt: skip


@pytest.mark.e2e_all
@pytest.mark.parametrize("kinds", [ARGO, ARGO[::-1]], ids=["argo", "reverse"])
def test_each_order_of_kinds_trains(kinds: tuple[str, ...], namespace: str, tmp_path: Path) -> None:
    release = Release("ordered", namespace, tmp_path)
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values()))
    text = command("helm", "template", "ordered", str(CHART), "-n", namespace, "-f", str(file),
                   "--no-hooks")  # fmt: skip
    things = [thing for thing in yaml.safe_load_all(text) if thing]
    for thing in sorted(things, key=lambda it: kinds.index(it["kind"])):
        apply(release, thing)
    release.trains()


@pytest.mark.e2e_all
def test_an_account_that_may_only_edit_is_told_the_right_that_it_lacks(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Release("edited", namespace, tmp_path)
    release.kubectl("create", "rolebinding", "ed", "--clusterrole=edit", "--user=ed")
    account = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    for user in account["users"]:
        user["user"]["as"] = "ed"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(account))
    monkeypatch.setenv("KUBECONFIG", str(file))
    said = seedbed("deploy", "cartpole-vtrace", f"--namespace={namespace}", "--release=edited",
                   "--set", "image.tag=dev")  # fmt: skip
    assert 'User "ed" cannot' in said
    assert 'resource "roles"' in said
    assert f'in the namespace "{namespace}"' in said
    assert f"exit code {ExitCode.DEPLOY.value}" in said
