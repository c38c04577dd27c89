"""The chart `seedbed-set`: the controller of a set, and the rights of its runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seedbed.sets.run_objects import PLACEHOLDER
from tests.support.chart import SET_CHART, SET_VALUES, merged, render, run, values_of

VALUES = values_of(SET_VALUES)
CHANGES = {"create", "patch", "delete"}


def rendered(**more: Any) -> Any:
    return render(merged(VALUES, more), "try", SET_CHART)


def refused(more: dict[str, Any], release: str = "try") -> str:
    answer = run("template", release, str(SET_CHART), values=merged(VALUES, more))
    assert answer.returncode != 0, "it was rendered"
    return answer.stderr


def test_the_defaults_are_what_the_schema_says() -> None:
    from tools.chart_set_values import SetValues

    given = values_of(SET_CHART / "values.yaml")
    wanted = SetValues().model_dump(by_alias=True, exclude_none=True)
    wanted.pop("global")
    assert given.keys() == wanted.keys()
    assert SetValues.model_validate(given).model_dump() == SetValues().model_dump()


def test_the_placeholder_is_that_of_the_templates() -> None:
    assert PLACEHOLDER in (SET_CHART / "templates" / "_names.tpl").read_text()
    assert PLACEHOLDER not in rendered().text


def test_the_controller_reads_the_files_of_the_set() -> None:
    objects = rendered()
    spec = objects.one("ConfigMap", "try-set")
    assert spec["data"]["sweep.yaml"] == VALUES["files"]["sweep"]
    assert json.loads(spec["data"]["limits.json"]) == VALUES["limits"]
    assert spec["binaryData"] == {"templates.json.gz": VALUES["files"]["templates"]}
    labels = spec["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "seedbed-set"
    assert labels["app.kubernetes.io/instance"] == "try"
    pod = objects.pods()["try-set"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["seedbed", "controller"]  # the image's own is the meter
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    for option, mount in (("--spec", "spec"), ("--folder", "set")):
        assert f"{option}={mounts[mount]}" in container["args"]
    assert {one["name"]: one for one in pod["volumes"]}["spec"]["configMap"]["name"] == "try-set"


def test_a_change_of_what_it_reads_restarts_the_controller_alone() -> None:
    def checksum(**more: Any) -> str:
        found = rendered(**more).pods()["try-set"]["metadata"]["annotations"]["checksum/set"]
        return str(found)

    assert checksum() == checksum(extraLabels={"team": "rl"})
    changes: list[dict[str, Any]] = [
        {"limits": {"learners": 3}}, {"files": {"sweep": "seeds: 3\n"}}, {"files": {"templates": ""
        "H4s="}},
    ]  # fmt: skip
    assert len({checksum(), *(checksum(**change) for change in changes)}) == 4


def test_an_upgrade_touches_no_state() -> None:
    state = rendered().one("ConfigMap", "try-set-state")
    assert state.keys() == {"apiVersion", "kind", "metadata"}


@pytest.mark.parametrize("runs", ["keep", "delete"])
def test_what_outlives_the_release(runs: str) -> None:
    kept = {
        (item["kind"], item["metadata"]["name"])
        for item in rendered(runs=runs).all
        if item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    own = {("ConfigMap", "try-set-state"), ("PersistentVolumeClaim", "try-set")}
    # A pod of a run that stays may be made again, and its meter must end it.
    of_runs = {("ServiceAccount", f"try-set-{role}") for role in ("cost", "learner", "actor")}
    of_runs |= {("Role", "try-set-cost"), ("RoleBinding", "try-set-cost")}
    assert kept == (own | of_runs if runs == "keep" else own)
    arguments = rendered(runs=runs).pods()["try-set"]["spec"]["containers"][0]["args"]
    assert ("--owns-runs" in arguments) == (runs == "delete")


@pytest.mark.parametrize("volumes", ["keep", "free"])
def test_rights_are_of_names(volumes: str) -> None:
    objects = rendered(volumes=volumes)
    rules = objects.one("Role", "try-set")["rules"]
    for rule in rules:
        named = rule.get("resourceNames")
        assert named or not {"get", "patch", "delete", "update"} & {*rule["verbs"]}, rule
        assert not {"roles", "rolebindings", "serviceaccounts", "*"} & {*rule["resources"]}
        assert "*" not in rule["verbs"]
        if "secrets" in rule["resources"]:
            assert rule["verbs"] == ["create"] or named == ["try-set-auth"]
    lists = [rule["resources"] for rule in rules if "list" in rule["verbs"]]
    frees = volumes == "free"
    assert lists == [["pods", "events"]] + [["persistentvolumeclaims"]] * frees
    (sets,) = (
        rule for rule in rules
        if rule["resources"] == ["statefulsets"] and "delete" in rule["verbs"]
    )  # fmt: skip
    assert sets["resourceNames"] == ["cartpole-s1-learner", "cartpole-s2-learner"]
    claims = [rule for rule in rules if "runs-cartpole-s1-learner-0" in str(rule)]
    assert [rule["verbs"] for rule in claims] == [["delete"]] * frees
    # A claim that a run has beside those of its pods, such as that of several hosts.
    own = {"apiGroup": "", "resource": "persistentvolumeclaims", "names": ["x"], "isClaim": False}
    rules = rendered(volumes=volumes, objects=[own]).one("Role", "try-set")["rules"]
    verbs = [rule["verbs"] for rule in rules if rule.get("resourceNames") == ["x"]]
    assert verbs == [["patch", "delete"] if frees else ["patch"]]
    meters = objects.one("Role", "try-set-cost")["rules"]
    assert meters[0] == {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    assert meters[1]["resourceNames"] == ["cartpole-s1-state", "cartpole-s2-state"]


def test_without_rbac_the_accounts_are_somebody_elses() -> None:
    objects = rendered(rbac={"create": False}, auth={"existingSecret": "own"})
    kinds = {item["kind"] for item in objects.all}
    assert not {"Role", "RoleBinding"} & kinds
    accounts = {item["metadata"]["name"] for item in objects.of("ServiceAccount")}
    assert accounts == {"try-set-learner", "try-set-actor"}  # which have no rights
    assert objects.pods()["try-set"]["spec"]["serviceAccountName"] == "seedbed-set"


def test_a_secret_of_yours_is_mounted_and_no_right_to_secrets_asked_for() -> None:
    objects = rendered(auth={"existingSecret": "own"})
    pod = objects.pods()["try-set"]["spec"]
    (volume,) = (one for one in pod["volumes"] if "secret" in one)
    # The controller reads rows and status, and calls nothing else.
    assert volume["secret"]["items"] == [{"key": "observer", "path": "tokens"}]
    assert volume["secret"]["secretName"] == "own"
    (container,) = pod["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert environment["SEEDBED_TOKEN_FILE"] == f"{mounts[volume['name']]}/tokens"
    assert "secrets" not in json.dumps(objects.one("Role", "try-set"))
    assert not [one for one in rendered().pods()["try-set"]["spec"]["volumes"] if "secret" in one]


def test_without_rbac_and_a_secret_of_yours_the_way_to_one_is_told() -> None:
    said = refused({"rbac": {"create": False}})
    assert "the account seedbed-set may make no Secret" in said
    assert "seedbed tokens DIR && kubectl -n default create secret generic try-tokens" in said
    assert "set auth.existingSecret: try-tokens" in said


def test_edges_of_the_controller() -> None:
    policy = rendered().one("NetworkPolicy", "try-set")["spec"]
    pod = rendered().pods()["try-set"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pod.items()
    learners = [
        peer["podSelector"]["matchLabels"]
        for rule in policy["egress"]
        for peer in rule.get("to", [])
        if "podSelector" in peer
    ]
    assert learners == [
        {
            "app.kubernetes.io/name": "seedbed",
            "app.kubernetes.io/component": "learner",
            "seedbed.dev/set": "try",
        }
    ]
    (ingress,) = policy["ingress"]
    assert ingress["ports"] == [{"protocol": "TCP", "port": "metrics"}]


@pytest.mark.parametrize("kind", ["PodMonitor", "PodMonitoring"])
def test_series_of_the_controller_and_of_the_runs_have_the_labels_of_the_rules(kind: str) -> None:
    """The controller's own series have a label `set`: one of its pod would rename theirs."""
    metrics = {"metrics": {"type": f"{kind[0].lower()}{kind[1:]}"}}

    def labels(objects: Any) -> dict[str, str]:
        (found,) = objects.of(kind)
        spec = found["spec"]
        if kind == "PodMonitoring":
            return {one["to"]: one["from"] for one in spec["targetLabels"]["fromPod"]}
        (endpoint,) = spec["podMetricsEndpoints"]
        return {one["targetLabel"]: one["sourceLabels"][0] for one in endpoint["relabelings"]}

    assert labels(rendered(**metrics)).keys() == {"experiment", "role"}
    runs = labels(render({**metrics, "set": "try", "auth": {"existingSecret": "a"}}))
    assert runs.keys() == {"experiment", "role", "set"}
    assert runs["set"].endswith(("seedbed.dev/set", "label_seedbed_dev_set"))
    assert labels(render(metrics)).keys() == {"experiment", "role"}


def test_names_at_the_limit_and_one_letter_more() -> None:
    longest = "a" * 35
    objects = render(merged(VALUES, {"names": [longest]}), longest, SET_CHART)
    for item in objects.all:
        assert len(item["metadata"]["name"]) <= 63
    assert "36 letters" in refused({"names": [f"{longest}a"]})
    assert "36 letters" in refused({}, f"{longest}a")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"files": {"sweep": ""}}, "files.sweep is empty"),
        ({"extraLabels": {"app.kubernetes.io/name": "x"}}, "choose another label"),
        ({"limits": {"learners": -1}}, "limits"),
        ({"runs": "stop"}, "runs"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], words: str) -> None:
    assert words in refused(values)
