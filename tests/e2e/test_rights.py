"""A user who may make no rights installs by docs/rights.md; what the meter's own token may do."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from tests.e2e.release import LONG_S, ROOT, Release, command, until, values
from tests.support.chart import render

# One after the other: the platform's chart makes objects of the whole cluster.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.xdist_group("platform")]

SEEDBED = (sys.executable, "-m", "seedbed")
PLATFORM = ROOT / "helm" / "seedbed-platform"
ROWS = re.findall(r"^\| (\w+) \| ([\w.-]*) \| (edit|admin|the cluster's administrator) \|",
                  (ROOT / "docs" / "rights.md").read_text(), re.MULTILINE)  # fmt: skip


@pytest.fixture
def platform(namespace: str, tmp_path: Path) -> Iterator[None]:
    """The rights of the platform's chart in this namespace."""
    release = Release(f"platform-{namespace}", namespace, tmp_path, chart=PLATFORM)
    release.install({"dashboard": {"enabled": False}, "rights": {"namespaces": [namespace]}})
    yield
    release.uninstall()


def may(user: str, namespace: str, kind: str, group: str) -> bool:
    """Whether an account may make objects of a kind, which the cluster need not have."""
    plural = f"{kind.lower()[:-1]}ies" if kind.endswith("Policy") else f"{kind.lower()}s"
    what = client.V1ResourceAttributes(
        namespace=namespace, verb="create", group=group, resource=plural
    )
    spec = client.V1SubjectAccessReviewSpec(user=user, resource_attributes=what)
    api = client.AuthorizationV1Api(config.new_client_from_config())
    review = api.create_subject_access_review(client.V1SubjectAccessReview(spec=spec))
    return bool(review.status.allowed)


def own_kubeconfig(release: Release, account: str) -> Path:
    """A file with the token of a service account, and no other credential."""
    own = json.loads(command("kubectl", "config", "view", "--raw", "--minify", "-o=json"))
    token = release.kubectl("create", "token", account).strip()
    own["users"][0]["user"] = {"token": token}
    file = release.folder / f"{account}.kubeconfig"
    file.write_text(json.dumps(own))
    return file


def refuse_other_changes(
    patch: Callable[[dict[str, Any]], object], *changes: tuple[dict[str, Any], str]
) -> None:
    for change, words in changes:
        with pytest.raises(client.ApiException) as refused:
            patch(change)
        said = str(json.loads(refused.value.body)["message"])
        assert "a cost meter may change suspend and replicas alone" in said
        assert words in said


@pytest.mark.e2e_all
def test_a_meters_token_suspends_a_jobset_and_changes_nothing_else_of_it(
    platform: None, namespace: str, tmp_path: Path
) -> None:
    if "jobset.x-k8s.io" not in command("kubectl", "api-versions"):
        pytest.skip("the cluster has no JobSet controller")
    rendered = render({"learner": {"hosts": 2}, "experiment": {"learner": {"backend": "jax"}}})
    item = rendered.one("JobSet", "pong-learner")
    item["spec"]["suspend"] = True
    release = Release("pong", namespace, tmp_path)
    file = tmp_path / "jobset.json"
    file.write_text(json.dumps(item))
    release.kubectl("apply", "-f", str(file))
    release.kubectl("create", "serviceaccount", "pong-cost")
    for verb in ("get", "patch"):
        release.kubectl("create", "role", f"jobsets-{verb}", f"--verb={verb}",
                        "--resource=jobsets.jobset.x-k8s.io")  # fmt: skip
        release.kubectl("create", "rolebinding", f"jobsets-{verb}", f"--role=jobsets-{verb}",
                        f"--serviceaccount={namespace}:pong-cost")  # fmt: skip
    api = config.new_client_from_config(str(own_kubeconfig(release, "pong-cost")))
    patch = partial(
        client.CustomObjectsApi(api).patch_namespaced_custom_object, "jobset.x-k8s.io", "v1alpha2",
        namespace, "jobsets", "pong-learner", _content_type="application/merge-patch+json",
    )  # fmt: skip
    # JobSet itself lets nobody change an image, and everybody where suspended pods will run.
    elsewhere = deepcopy(item["spec"]["replicatedJobs"])
    elsewhere[0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    refuse_other_changes(
        patch,
        ({"spec": {"ttlSecondsAfterFinished": 1}}, "would change ttlSecondsAfterFinished"),
        ({"spec": {"suspend": False, "replicatedJobs": elsewhere}}, "replicatedJobs"),
        ({"metadata": {"labels": {"a": "b"}}}, "would change labels"),
    )
    patch({"spec": {"suspend": False}})
    assert release.get("jobset", "pong-learner")["spec"]["suspend"] is False
    patch({"spec": {"suspend": True}})
    release.kubectl("delete", "jobset", "pong-learner")


def test_edit_installs_and_the_meters_token_changes_numbers_alone(
    platform: None, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = f"system:serviceaccount:{namespace}:user"
    granted = Release("granted", namespace, tmp_path)
    granted.kubectl("create", "serviceaccount", "user")
    granted.kubectl("create", "rolebinding", "user", "--clusterrole=edit",
                    f"--serviceaccount={namespace}:user")  # fmt: skip
    assert len(ROWS) > 10
    for kind, group, role in ROWS:
        assert may(user, namespace, kind, group) is (role == "edit"), kind
    until(lambda: may(user, namespace, "JobSet", "jobset.x-k8s.io"), "the roles are aggregated")

    # A queue gives the meter's Role the patch of whole StatefulSets. A Kueue would hold them back.
    if "kueue.x-k8s.io" in command("kubectl", "api-versions"):
        pytest.skip("the cluster has a Kueue, which has no such queue")
    given = tmp_path / "values.json"
    given.write_text(json.dumps(values(pod={"queueName": "none"})))
    with monkeypatch.context() as environment:
        environment.setenv("KUBECONFIG", str(own_kubeconfig(granted, "user")))
        command(*SEEDBED, "tokens", str(tmp_path / "tokens"))
        granted.kubectl("create", "secret", "generic", "pong-tokens",
                        f"--from-file={tmp_path / 'tokens'}")  # fmt: skip
        command(*SEEDBED, "deploy", "cartpole-vtrace", "-n", namespace, "--release", "granted",
                "--profile", str(given), "--set", "rbac.create=false",
                "--set", "auth.existingSecret=pong-tokens", timeout_s=LONG_S)  # fmt: skip

    # It pauses a set that Kueue would admit by a patch of the whole set: the policy lets it.
    learner = "statefulset/granted-learner"
    granted.kubectl("patch", "configmap", "granted-state", "--type=merge",
                    '-p={"data":{"paused":"by hand"}}')  # fmt: skip
    granted.until(lambda: granted.replicas(learner) == 0, "the meter takes it to zero")
    api = config.new_client_from_config(str(own_kubeconfig(granted, "seedbed-meter")))
    patch = partial(
        client.AppsV1Api(api).patch_namespaced_stateful_set, "granted-learner", namespace
    )
    container = {"name": "learner", "image": "localhost/other:1"}
    refuse_other_changes(
        patch,
        ({"spec": {"template": {"spec": {"containers": [container]}}}}, "would change template"),
        ({"spec": {"replicas": 1, "template": {"spec": {"hostNetwork": True}}}}, "template"),
        ({"spec": {"minReadySeconds": 7}}, "would change minReadySeconds"),
        ({"metadata": {"annotations": {"seedbed.dev/meter": "x"}}}, "would change annotations"),
    )
    with pytest.raises(client.ApiException, match="Forbidden"):
        client.CoreV1Api(api).read_namespaced_secret("pong-tokens", namespace)
    granted.kubectl("patch", "configmap", "granted-state", "--type=merge",
                    '-p={"data":{"paused":null}}')  # fmt: skip
    granted.until(lambda: granted.replicas(learner) == 1, "and brings it back")
    granted.uninstall()


@pytest.mark.e2e_all
@pytest.mark.parametrize("role", ["edit", "admin"])
def test_a_user_of_one_namespace_installs_a_set(
    platform: None, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """With `edit` by accounts of the platform, with `admin` by Roles of the set's own."""
    name, account = f"lab-{role}", f"user-{role}"
    granted = Release(name, namespace, tmp_path)
    granted.kubectl("create", "serviceaccount", account)
    granted.kubectl("create", "rolebinding", account, f"--clusterrole={role}",
                    f"--serviceaccount={namespace}:{account}")  # fmt: skip
    user = f"system:serviceaccount:{namespace}:{account}"
    kind, group = "Role", "rbac.authorization.k8s.io"
    until(lambda: may(user, namespace, kind, group) is (role == "admin"), "the binding holds")
    given = values()
    experiment = given.pop("experiment")
    experiment["learner"].pop("inference")
    experiment["stop"] = {"env_frames": 20_000}
    profile, file = tmp_path / "small.json", tmp_path / "cartpole.yaml"
    profile.write_text(json.dumps(given))
    file.write_text(json.dumps({"name": "cartpole", **experiment}))
    tag = f"set.image.tag={os.environ.get('SEEDBED_E2E_TAG', 'dev')}"
    words = [*SEEDBED, "deploy", str(file), "--name", name, "-n", namespace, "--seeds", "2",
             "--max-learners", "1", "--profile", str(profile), "--set", tag]  # fmt: skip
    own = {"edit": "seedbed-set", "admin": f"{name}-set"}[role]
    with monkeypatch.context() as environment:
        environment.setenv("KUBECONFIG", str(own_kubeconfig(granted, account)))
        said = command("kubectl", "get", "pods", "--all-namespaces", check=False)
        assert "Forbidden" in said, "it may use other namespaces, too"
        if role == "edit":
            said = command(*words, check=False, timeout_s=LONG_S)
            assert "--set rbac.create=false" in said
            words += ["--set", "rbac.create=false"]
            said = command(*words, check=False, timeout_s=LONG_S)
            assert f"set auth.existingSecret: {name}-tokens" in said
            words += ["--set", f"auth.existingSecret={name}-tokens"]
            command(*SEEDBED, "tokens", str(tmp_path / "tokens"))
            granted.kubectl("create", "secret", "generic", f"{name}-tokens",
                            f"--from-file={tmp_path / 'tokens'}")  # fmt: skip
        command(*words, timeout_s=LONG_S)

        # The whole life of the set, with the user's own rights alone.
        def rows() -> list[dict[str, Any]]:
            words = (*SEEDBED, "list", name, "-n", namespace, "--json")
            found: list[dict[str, Any]] = json.loads(command(*words))
            return found

        until(lambda: {row["state"] for row in rows()} == {"finished"}, "both runs end", 600)
        assert len(rows()) == 2
        compared = command(*SEEDBED, "compare", name, "-n", namespace, "--json")
        assert sum(len(group["runs"]) for group in json.loads(compared)["groups"]) == 2
        command(*SEEDBED, "fetch", name, str(tmp_path / "home"), "-n", namespace, timeout_s=LONG_S)
        assert (tmp_path / "home" / "runs" / f"{name}-s1" / "checkpoints").is_dir()

    pod = granted.get("deployment", f"{name}-set")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == own
    # Not one call of the controller was refused.
    logs = granted.kubectl("logs", f"deployment/{name}-set")
    assert "Forbidden" not in logs
    assert "ForbiddenException" not in logs

    # What the controller's account may not do.
    api = config.new_client_from_config(str(own_kubeconfig(granted, own)))
    core = client.CoreV1Api(api)
    token = {"edit": f"{name}-tokens", "admin": "seedbed-other"}[role]
    for call in (
        lambda: core.read_namespaced_secret(token, namespace),
        lambda: core.list_namespaced_secret(namespace),
        lambda: core.delete_namespaced_persistent_volume_claim(f"{name}-set", namespace),
        lambda: core.create_namespaced_service_account(namespace, {"metadata": {"name": "x"}}),
        lambda: core.list_namespaced_pod("default"),
    ):
        with pytest.raises(client.ApiException, match="Forbidden"):
            call()
    granted.uninstall()
