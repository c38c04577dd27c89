"""Credentials in the chart: which pod has which, what makes them, and what is rendered of them."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from seedbed.cli import actor, cost, learner, replay
from seedbed.runtime.tokens import Role
from tests.support.chart import CHART, SHARDS, Rendered, merged, refused, render, run

OFF: dict[str, Any] = {"auth": {"enabled": False}}
TLS: dict[str, Any] = {"tls": {"enabled": True}}
ROLES = {
    "pong-learner": Role.LEARNER,
    "pong-actor": Role.ACTOR,
    "pong-test": Role.ACTOR,
    "pong-replay": Role.SHARD,
    "pong-cost": Role.OBSERVER,
}
COMMANDS = {"pong-learner": learner, "pong-actor": actor, "pong-replay": replay, "pong-cost": cost}


def secrets_of(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [volume["secret"] for volume in pod["spec"]["volumes"] if "secret" in volume]


def parsed(rendered: Rendered, name: str) -> argparse.Namespace:
    """The arguments of a pod, read as its command reads them."""
    parser = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    (container,) = rendered.pods()[name]["spec"]["containers"]
    return parser.parse_args(container["args"])


def test_each_pod_has_the_key_of_its_own_role_only() -> None:
    pods = render(SHARDS).pods()
    assert pods.keys() == ROLES.keys()
    for name, pod in pods.items():
        if name == "pong-cost":
            continue
        (secret,) = secrets_of(pod)
        assert secret["secretName"] == "pong-auth"
        assert secret["items"] == [{"key": ROLES[name], "path": "tokens"}]
        for container in pod["spec"]["containers"]:
            environment = {item["name"]: item.get("value") for item in container["env"]}
            assert environment["SEEDBED_TOKEN_FILE"] == "/etc/seedbed-auth/tokens"
            (mount,) = (x for x in container["volumeMounts"] if x["name"] == "auth")
            # A folder, because a single file of a volume is not replaced when the Secret changes.
            assert mount == {"name": "auth", "mountPath": "/etc/seedbed-auth", "readOnly": True}
            assert "--insecure" not in container["args"]


@pytest.mark.parametrize("values", [{}, SHARDS, merged(SHARDS, TLS), OFF], ids=str)
def test_no_template_renders_a_secret_or_anything_random(values: dict[str, Any]) -> None:
    assert not render(values).of("Secret")
    first, second = (
        run("template", "pong", str(CHART), "--namespace", "rl", values=values) for _ in range(2)
    )
    assert first.returncode == 0
    assert first.stdout == second.stdout
    for path in (CHART / "templates").rglob("*.*"):
        assert not {"randAlpha", "genPrivateKey", "genCA", "uuidv4"} & set(path.read_text().split())


def test_the_meter_makes_the_secret_and_mounts_nothing_that_it_makes() -> None:
    rendered = render()
    assert not rendered.of("Job")
    meter = rendered.pods()["pong-cost"]["spec"]
    assert not secrets_of(rendered.pods()["pong-cost"])
    assert not {x["name"] for x in meter["containers"][0]["env"]} & {"SEEDBED_TOKEN_FILE"}
    assert parsed(rendered, "pong-cost").auth_secret == "pong-auth"
    rules = [r for r in rendered.one("Role", "pong-cost")["rules"] if r["resources"] == ["secrets"]]
    assert rules == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch"],
         "resourceNames": ["pong-auth"]},
    ]  # fmt: skip
    owner = next(
        r for r in rendered.one("Role", "pong-cost")["rules"]
        if r.get("resourceNames") == ["pong-experiment"]
    )  # fmt: skip
    assert (owner["resources"], owner["verbs"]) == (["configmaps"], ["get"])


def test_without_a_meter_a_person_makes_the_secret() -> None:
    off = {"cost": {"enabled": False}}
    assert "auth.existingSecret is empty" in refused(off)
    assert render(merged(off, {"auth": {"existingSecret": "mine"}}))
    assert render(merged(off, OFF))


def test_a_given_secret_is_used_and_none_is_made() -> None:
    given = render(merged(SHARDS, {"auth": {"existingSecret": "mine"}}))
    assert not parsed(given, "pong-cost").auth_secret
    for name, pod in given.pods().items():
        (secret,) = secrets_of(pod)
        assert (secret["secretName"], secret["items"][0]["key"]) == ("mine", ROLES[name])


def test_without_auth_every_client_is_served_and_that_is_said() -> None:
    off, on = render(merged(SHARDS, OFF)), render(SHARDS)
    for name, pod in off.pods().items():
        assert not secrets_of(pod), name
        environment = {x["name"] for c in pod["spec"]["containers"] for x in c["env"]}
        assert "SEEDBED_TOKEN_FILE" not in environment
    for name in ("pong-learner", "pong-replay", "pong-cost"):
        assert parsed(off, name).insecure
        assert not parsed(on, name).insecure
    assert "--insecure" not in off.pods()["pong-actor"]["spec"]["containers"][0]["args"]
    bare = merged(merged(OFF, TLS), {"cost": {"enabled": False}})
    assert not parsed(render(bare), "pong-learner").insecure, "certificates are demanded"
    assert "auth.enabled" in refused(merged(OFF, TLS))


def test_certificates_carry_the_role_and_the_release() -> None:
    rendered = render(merged(SHARDS, TLS))
    for certificate in rendered.of("Certificate"):
        name = certificate["metadata"]["name"]
        if name == "pong-authority":
            continue
        assert f"{ROLES[name]}.pong.rl.seedbed" in certificate["spec"]["dnsNames"]
        named = [x for x in certificate["spec"]["dnsNames"] if x.endswith(".seedbed")]
        assert len(named) == 1, "one role"
    for name in ("pong-learner", "pong-actor", "pong-replay"):
        args = parsed(rendered, name)
        assert (args.tls, args.tls_release) == ("/etc/seedbed-tls", "pong.rl")
        assert len(secrets_of(rendered.pods()[name])) == 2
    assert not secrets_of(rendered.pods()["pong-cost"]), "it has no certificate"


def test_a_misspelt_key_is_refused() -> None:
    assert "existingsecret" in refused({"auth": {"existingsecret": "x"}})


@pytest.mark.parametrize("values", [{}, OFF], ids=["on", "off"])
def test_the_notes_say_how_to_read_status(values: dict[str, Any]) -> None:
    said = run("install", "pong", str(CHART), "-n", "rl", "--dry-run=client", values=values).stdout
    assert "curl 127.0.0.1:9090/status" in said
    assert ("`observer` of the Secret pong-auth" in said) == (values == {})


def test_secrets_of_cert_manager_go_with_the_release() -> None:
    def owned(values: dict[str, Any]) -> list[str]:
        rendered = render(values)
        args = parsed(rendered, "pong-cost")
        names: list[str] = [*filter(None, [args.auth_secret]), *args.owns]
        rules = rendered.one("Role", "pong-cost")["rules"]
        (rule,) = (r for r in rules if r["resources"] == ["secrets"] and "get" in r["verbs"])
        assert rule["resourceNames"] == names
        return names

    keys = ["pong-learner-tls", "pong-actor-tls"]
    assert owned({}) == ["pong-auth"]
    assert owned(TLS) == ["pong-auth", *keys, "pong-authority"]
    given = {"auth": {"existingSecret": "mine"}, "tls": {"issuer": {"name": "x"}}}
    assert owned(merged(TLS, given)) == keys, "a secret of one's own stays"
    certificates = {c["spec"]["secretName"] for c in render(TLS).of("Certificate")}
    assert certificates == {*keys, "pong-authority"}


def test_pods_of_hooks_pass_a_quota() -> None:
    pod = render().pods()["pong-test"]["spec"]
    for part in ("requests", "limits"):
        assert pod["containers"][0]["resources"][part].keys() == {"cpu", "memory"}
    assert pod["serviceAccountName"] == "pong-actor"
