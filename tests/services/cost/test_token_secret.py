"""The tokens of a release: made once, owned by the release, read by the meter."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from seedbed.runtime.tokens import Role, Tokens
from seedbed.services.cost.token_secret import TokenSecret


class FakeCore:
    """The Secrets and the ConfigMap of a namespace. A real API server is in `make e2e`."""

    def __init__(self) -> None:
        self.secrets: dict[str, Any] = {}
        self.calls: list[str] = []
        self.refusals = 0

    def read_namespaced_secret(self, name: str, namespace: str, **_: Any) -> Any:
        if name not in self.secrets:
            raise ApiException(404)
        return self.secrets[name]

    def create_namespaced_secret(self, namespace: str, secret: Any, **_: Any) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise ApiException(403, "Forbidden")
        self.calls.append(f"create {secret.metadata.name}")
        secret.data = {
            key: base64.b64encode(text.encode()).decode()
            for key, text in secret.string_data.items()
        }
        self.secrets[secret.metadata.name] = secret
        return secret

    def patch_namespaced_secret(self, name: str, namespace: str, body: Any, **_: Any) -> None:
        self.calls.append(f"own {name}")
        owners = [
            client.V1OwnerReference(
                api_version=one["apiVersion"], kind=one["kind"], name=one["name"], uid=one["uid"]
            )
            for one in body["metadata"]["ownerReferences"]
        ]
        self.secrets[name].metadata.owner_references = owners

    def read_namespaced_config_map(self, name: str, namespace: str, **_: Any) -> Any:
        assert name == "pong-experiment"
        return SimpleNamespace(metadata=SimpleNamespace(name=name, uid="u1"))


class Scene:
    def __init__(self, path: Path, name: str = "pong-auth", others: tuple[str, ...] = ()) -> None:
        self.core, self.now, self.file = FakeCore(), 0.0, path / "tokens"
        self.secret = TokenSecret(
            "pong-experiment", "rl", name, others, self.file, self.core, lambda: self.now
        )


def foreign(name: str) -> Any:
    return client.V1Secret(metadata=client.V1ObjectMeta(name=name), data={})


def test_a_secret_is_made_once_and_owned_by_the_release(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.secret.wait()
    assert scene.core.calls == ["create pong-auth", "own pong-auth"]
    made = scene.core.secrets["pong-auth"]
    assert made.data.keys() == {str(role) for role in Role}
    assert Tokens(scene.file).secret(Role.OBSERVER)
    (owner,) = made.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("ConfigMap", "pong-experiment", "u1")
    again = TokenSecret("pong-experiment", "rl", "pong-auth", (), scene.file, scene.core)
    again.wait()
    assert len(scene.core.calls) == 2


def test_the_secret_of_an_older_chart_is_adopted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    old = foreign("pong-auth")
    old.data = {"observer": base64.b64encode(b"observer " + b"x" * 32 + b"\n").decode()}
    scene.core.secrets["pong-auth"] = old
    scene.secret.wait()
    assert scene.core.calls == ["own pong-auth"]
    assert Tokens(scene.file).secret(Role.OBSERVER) == "x" * 32


def test_a_right_that_comes_late_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path)
    scene.core.refusals = 2
    waited: list[float] = []
    scene.secret.wait(waited.append)
    assert waited == [5.0, 5.0]
    assert "cannot make the Secret pong-auth: Forbidden; without it no pod" in caplog.text
    assert scene.file.exists()


def test_what_is_deleted_or_rotated_is_seen_within_a_minute(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.secret.wait()
    before = scene.file.read_text()
    del scene.core.secrets["pong-auth"]
    scene.now = 30
    scene.secret.keep()
    assert "pong-auth" not in scene.core.secrets
    scene.now = 61
    scene.secret.keep()
    assert scene.core.calls[2:] == ["create pong-auth", "own pong-auth"]
    assert scene.file.read_text() != before


def test_secrets_of_cert_manager_are_owned_when_they_come(tmp_path: Path) -> None:
    scene = Scene(tmp_path, name="", others=("pong-learner-tls",))
    scene.secret.keep()
    assert not scene.core.calls
    scene.core.secrets["pong-learner-tls"] = foreign("pong-learner-tls")
    scene.now = 61
    scene.secret.keep()
    assert scene.core.calls == ["own pong-learner-tls"]
    assert not scene.file.exists()
