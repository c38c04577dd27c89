"""Credentials in the chart: which pod has which, what makes them, and what is rendered of them."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from seedbed.cli import actor, cost, learner, replay, tokens
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


def jobs(rendered: Rendered) -> dict[str, dict[str, Any]]:
    return {item["metadata"]["name"]: item for item in rendered.of("Job")}


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


def test_a_job_makes_the_secret_before_the_first_pod_and_one_deletes_it() -> None:
    rendered = render()
    made = jobs(rendered)
    assert made.keys() == {"pong-auth-make", "pong-auth-delete"}
    for name, hooks, verbs in (
        ("pong-auth-make", "pre-install,pre-upgrade", ["create"]),
        ("pong-auth-delete", "post-delete", ["delete"]),
    ):
        for kind in ("Job", "ServiceAccount", "Role", "RoleBinding"):
            annotations = rendered.one(kind, name)["metadata"]["annotations"]
            assert annotations["helm.sh/hook"] == hooks
            weight = annotations["helm.sh/hook-weight"]
            assert (int(weight) < 0) == (kind != "Job"), "what the Job needs comes first"
        (rule,) = rendered.one("Role", name)["rules"]
        assert (rule["resources"], rule["verbs"]) == (["secrets"], verbs)
        spec = made[name]["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == name
        (container,) = spec["containers"]
        usual = rendered.pods()["pong-cost"]["spec"]
        assert spec["securityContext"] == usual["securityContext"]
        assert container["securityContext"] == usual["containers"][0]["securityContext"]
        assert container["image"] == usual["containers"][0]["image"]
        parser = argparse.ArgumentParser()
        tokens.add_arguments(parser)
        args = parser.parse_args(container["args"])
        assert (args.secret, args.namespace) == (["pong-auth"], "rl")
        assert args.delete == (name == "pong-auth-delete")
    (rule,) = rendered.one("Role", "pong-auth-delete")["rules"]
    assert rule["resourceNames"] == ["pong-auth"]


def test_the_jobs_pod_reaches_the_api_server_only() -> None:
    rendered = render()
    policy = rendered.one("NetworkPolicy", "pong-auth")["spec"]
    labels = jobs(rendered)["pong-auth-make"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert not policy.get("ingress")
    dns, server = policy["egress"]
    assert {port["port"] for port in dns["ports"]} == {53}
    cost_policy = rendered.one("NetworkPolicy", "pong-cost")["spec"]
    assert server in cost_policy["egress"]
    names = {item["metadata"]["name"] for item in render(OFF).of("NetworkPolicy")}
    assert "pong-auth" not in names


def test_a_given_secret_is_used_and_none_is_made() -> None:
    given = render(merged(SHARDS, {"auth": {"existingSecret": "mine"}}))
    assert not jobs(given)
    assert not [item for item in given.all if "pong-auth" in item["metadata"]["name"]]
    for name, pod in given.pods().items():
        (secret,) = secrets_of(pod)
        assert (secret["secretName"], secret["items"][0]["key"]) == ("mine", ROLES[name])


def test_without_auth_every_client_is_served_and_that_is_said() -> None:
    off, on = render(merged(SHARDS, OFF)), render(SHARDS)
    assert not jobs(off)
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
    assert len(secrets_of(rendered.pods()["pong-cost"])) == 1, "it has no certificate"


def test_a_misspelt_key_is_refused() -> None:
    assert "existingsecret" in refused({"auth": {"existingsecret": "x"}})


@pytest.mark.parametrize("values", [{}, OFF], ids=["on", "off"])
def test_the_notes_say_how_to_read_status(values: dict[str, Any]) -> None:
    said = run("install", "pong", str(CHART), "-n", "rl", "--dry-run=client", values=values).stdout
    assert "curl 127.0.0.1:9090/status" in said
    assert ("`observer` of the Secret pong-auth" in said) == (values == {})


def test_secrets_of_cert_manager_go_with_the_release() -> None:
    def deleted(values: dict[str, Any]) -> list[str]:
        rendered = render(values)
        made = jobs(rendered)["pong-auth-delete"]["spec"]["template"]["spec"]["containers"][0]
        parser = argparse.ArgumentParser()
        tokens.add_arguments(parser)
        names: list[str] = parser.parse_args(made["args"]).secret
        (rule,) = rendered.one("Role", "pong-auth-delete")["rules"]
        assert rule["resourceNames"] == names
        return names

    keys = ["pong-learner-tls", "pong-actor-tls"]
    assert deleted({}) == ["pong-auth"]
    assert deleted(TLS) == ["pong-auth", *keys, "pong-authority"]
    given = {"auth": {"existingSecret": "mine"}, "tls": {"issuer": {"name": "x"}}}
    assert deleted(merged(TLS, given)) == keys, "a secret of one's own stays"
    assert "pong-auth-make" not in jobs(render(merged(TLS, given)))
    certificates = {c["spec"]["secretName"] for c in render(TLS).of("Certificate")}
    assert certificates == {*keys, "pong-authority"}


def test_pods_of_hooks_pass_a_quota() -> None:
    pod = render({"test": {"resources": {"limits": {"cpu": "300m"}}}}).pods()["pong-test"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "300m", "memory": "1Gi"}
    assert pod["serviceAccountName"] == "pong-actor"
    job = jobs(render({"cost": {"resources": {"limits": {"cpu": "1"}}}}))["pong-auth-make"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "192Mi"}
