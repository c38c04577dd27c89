"""docs/rights.md against what the chart renders: who may install, and what the meter may do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from seedbed.deploy.set_shapes import RESOURCES
from seedbed.sets.run_objects import PLACEHOLDER
from tests.chart.test_platform_chart import render as render_platform
from tests.support.chart import (
    CI_VALUES,
    ROOT,
    SET_CHART,
    SET_VALUES,
    SHARDS,
    merged,
    refused,
    render,
    values_of,
)

PAGE = (ROOT / "docs" / "rights.md").read_text()
QUEUED = merged(SHARDS, {"pod": {"queueName": "q"}})
HOSTS = {
    "experiment": {"learner": {"backend": "jax"}},
    "learner": {"hosts": 2},
}
EVERY: list[dict[str, Any]] = [{}, QUEUED, HOSTS, *(values_of(path) for path in CI_VALUES)]
GRANTED: dict[str, Any] = {"rbac": {"create": False}, "auth": {"existingSecret": "tokens"}}
Right = tuple[str, str, tuple[str, ...]]


def tables() -> list[list[list[str]]]:
    """The tables of the page as rows of cells, without their heads."""
    found = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    return [
        [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines()[2:]]
        for text in found
    ]


def rights_of(rules: list[dict[str, Any]]) -> Iterator[Right]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield group, resource, tuple(rule["verbs"])


def rows(table: list[list[str]]) -> set[Right]:
    return {
        (row[0], resource.strip(), tuple(row[2].split(", ")))
        for row in table
        for resource in row[1].split(",")
    }


@cache
def rendered_kinds() -> dict[str, str]:
    """API group by kind, of everything that any values render."""
    found = {}
    for values in EVERY:
        for item in render(values).all:
            found[item["kind"]] = item["apiVersion"].rpartition("/")[0]
    for metrics in ("podMonitor", "podMonitoring"):
        for item in render_set(metrics={"type": metrics}).all:
            found[item["kind"]] = item["apiVersion"].rpartition("/")[0]
    return found


def render_set(**more: Any) -> Any:
    """A set whose runs have every kind of object."""
    kinds: list[dict[str, Any]] = [
        {"apiGroup": group, "resource": resource, "names": [PLACEHOLDER]}
        for group, resource in RESOURCES.values()
    ]
    claims = {"apiGroup": "", "resource": "persistentvolumeclaims", "names": ["x"], "isClaim": True}
    values = {**values_of(SET_VALUES), "objects": [*kinds, claims]}
    return render(merged(values, more), "try", SET_CHART)


def test_every_object_has_a_row_and_every_row_an_object() -> None:
    assert {row[0]: row[1] for row in tables()[0]} == rendered_kinds()


def test_the_meters_rights_are_those_of_the_table() -> None:
    wanted = rows(tables()[1])
    found: set[Right] = set()
    for values in EVERY:
        rendered = render(values)
        for kind in ("Role", "ClusterRole"):
            for item in rendered.of(kind):
                found |= set(rights_of(item["rules"]))
    assert found == wanted


def test_the_platforms_role_is_the_table_and_enough_for_every_release() -> None:
    platform = render_platform({"rights": {"namespaces": ["rl", "lab"]}})
    roles = [item for item in platform.of("Role") if item["metadata"]["name"] == "seedbed-meter"]
    assert [item["metadata"]["namespace"] for item in roles] == ["rl", "lab"]
    (nodes,) = (x for x in platform.of("ClusterRole") if x["metadata"]["name"].endswith("-nodes"))
    found = set(rights_of(roles[0]["rules"] + nodes["rules"]))
    assert found == rows(tables()[2])
    secrets = {right for right in rows(tables()[1]) if right[1] == "secrets"}
    # Without a Role of its own a meter stays.
    removals = {right for right in rows(tables()[1]) if right[2] == ("delete",)}
    asked = rows(tables()[1]) - secrets - removals
    for group, resource, verbs in asked:
        assert any(x[:2] == (group, resource) and set(verbs) <= set(x[2]) for x in found), resource


def test_the_controllers_rights_are_those_of_the_table() -> None:
    table = tables()[3]
    of_volumes = {"keep": set[Right](), "free": set[Right]()}
    for volumes, found in of_volumes.items():
        for rule in render_set(volumes=volumes).one("Role", "try-set")["rules"]:
            found |= set(rights_of([rule]))
            named = {row[3] for row in table if set(rights_of([rule])) & rows([row])}
            assert ("the namespace" in named) == ("resourceNames" not in rule), rule
    to_free = [row for row in table if "`set.volumes=free`" in row[4]]
    assert of_volumes["free"] | of_volumes["keep"] == rows(table)
    assert rows(table) - of_volumes["keep"] == rows(to_free), "who keeps volumes may free none"
    found = of_volumes["keep"]
    with_secret = render_set(auth={"existingSecret": "own"}).one("Role", "try-set")
    left = {row[1] for row in table if row[4] == "without `auth.existingSecret`"}
    assert left == {"secrets"}
    asked = set(rights_of(with_secret["rules"]))
    assert asked == {right for right in found if right[1] not in left}


def test_the_platforms_role_of_sets_is_the_table_and_enough_for_every_set() -> None:
    platform = render_platform({"rights": {"namespaces": ["rl", "lab"]}})
    roles = [item for item in platform.of("Role") if item["metadata"]["name"] == "seedbed-set"]
    assert [item["metadata"]["namespace"] for item in roles] == ["rl", "lab"]
    found = set(rights_of(roles[0]["rules"]))
    assert found == rows(tables()[4])
    given = {(group, resource, verb) for group, resource, verbs in found for verb in verbs}
    free = {"volumes": "free", "auth": {"existingSecret": "own"}}
    own = render_set(**free).one("Role", "try-set")["rules"]
    asked = {(group, what, verb) for group, what, verbs in rights_of(own) for verb in verbs}
    # Volumes are for people.
    assert asked - given == {("", "persistentvolumeclaims", "delete")}
    assert not given - asked, "a right that no set needs"
    assert not [right for right in given if right[1] == "secrets"]
    bindings, accounts = (
        {
            item["metadata"]["namespace"]: item
            for item in platform.of(kind)
            if item["metadata"]["name"] == "seedbed-set"
        }
        for kind in ("RoleBinding", "ServiceAccount")
    )
    for namespace in ("rl", "lab"):
        binding, account = bindings[namespace], accounts[namespace]
        assert binding["roleRef"]["name"] == "seedbed-set"
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "seedbed-set", "namespace": namespace}
        ]
        assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("values", EVERY, ids=lambda v: ",".join(v) or "defaults")
def test_a_release_without_rights_makes_none(values: dict[str, Any]) -> None:
    rendered = render(merged(values, GRANTED))
    admins = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert not (admins | policies) & {item["kind"] for item in rendered.all}
    if "cost" in values and values["cost"].get("enabled") is False:
        return
    (name,) = (item["metadata"]["name"] for item in rendered.of("Deployment")
               if item["metadata"]["name"].endswith("-cost"))  # fmt: skip
    (meter,) = rendered.pods()[name]["spec"]["containers"]
    assert "--ttl-s=0" in meter["args"]
    (job,) = rendered.of("CronJob")
    last_resort = job["spec"]["jobTemplate"]["spec"]["template"]
    for pod in (rendered.pods()[name], last_resort):
        assert pod["spec"]["serviceAccountName"] == "seedbed-meter"
        arguments = pod["spec"]["containers"][0]["args"]
        assert not [x for x in arguments if x.startswith(("--auth-secret", "--owns"))]
    names = {item["metadata"]["name"] for item in rendered.of("ServiceAccount")}
    assert "seedbed-meter" not in names
    assert name not in names


def test_without_a_secret_of_yours_the_way_to_one_is_told() -> None:
    said = refused({"rbac": {"create": False}})
    assert "auth.existingSecret" in said
    assert "seedbed tokens DIR && kubectl -n default create secret generic pong-tokens" in said


def test_every_profile_is_an_admins() -> None:
    """Nothing of the whole cluster, and no kind but those of the namespace."""
    for path in (ROOT / "helm" / "seedbed" / "profiles").glob("*.yaml"):
        kinds = {item["kind"] for item in render(values_of(path)).all}
        assert not {kind for kind in kinds if kind.startswith(("Cluster", "Validating"))}, path.stem


def test_the_policy_finds_the_meter_by_the_workloads_annotation() -> None:
    own = {"cost": {"pod": {"serviceAccount": {"create": False, "name": "brake"}}}}
    for values, account in (({}, "pong-cost"), (GRANTED, "seedbed-meter"), (own, "brake")):
        for base, kind in ((SHARDS, "StatefulSet"), (HOSTS, "JobSet")):
            items = render(merged(base, values)).of(kind)
            assert items
            for item in items:
                assert item["metadata"]["annotations"]["seedbed.dev/meter"] == account
    policy = yaml.safe_dump(render_platform().of("ValidatingAdmissionPolicy"))
    assert "seedbed.dev/meter" in policy
    assert not render_platform({"rights": {"meterPolicy": False}}).of("ValidatingAdmissionPolicy")


def test_users_roles_cover_what_edit_does_not() -> None:
    editor, viewer = (
        next(x for x in render_platform().of("ClusterRole") if x["metadata"]["name"] == name)
        for name in ("seedbed-editor", "seedbed-viewer")
    )
    aggregated = "rbac.authorization.k8s.io/aggregate-to-"
    assert {f"{aggregated}edit", f"{aggregated}admin"} <= editor["metadata"]["labels"].keys()
    assert f"{aggregated}view" in viewer["metadata"]["labels"]
    plural = {resource for _, resource, _ in rights_of(editor["rules"])}
    ours = {kind.lower() + "s" for kind in re.findall(r"^\| (\w+) \|.*seedbed-editor", PAGE, re.M)}
    assert plural == ours == {resource for _, resource, _ in rights_of(viewer["rules"])}
    assert {verb for rule in viewer["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
