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
from tests.support.private_files import write_private


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
        if "data" in body:
            self.calls.append(f"add {' '.join(body['data'])}")
            self.secrets[name].data.update(body["data"])
            return
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
    def __init__(
        self,
        path: Path,
        name: str = "pong-auth",
        others: tuple[str, ...] = (),
        learners: int = 0,
        core: FakeCore | None = None,
    ) -> None:
        self.core, self.now, self.file = core or FakeCore(), 0.0, path / "tokens"
        self.secret = TokenSecret(
            *("pong-experiment", "rl", name, learners, others, self.file),
            *(self.core, lambda: self.now),
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
    again = TokenSecret("pong-experiment", "rl", "pong-auth", 0, (), scene.file, scene.core)
    again.wait()
    assert len(scene.core.calls) == 2


def keys_in(core: FakeCore, folder: Path) -> dict[str, Tokens]:
    """The files of the Secret, as pods mount them."""
    data = core.secrets["pong-auth"].data
    texts = {name: base64.b64decode(text).decode() for name, text in data.items()}
    return {name: Tokens(write_private(folder / name, text)) for name, text in texts.items()}


def test_missing_keys_of_ranks_are_made_and_the_others_stay(tmp_path: Path) -> None:
    """More learners are wanted, and a person removes a key, to have another one."""
    scene = Scene(tmp_path, learners=2)
    scene.secret.wait()
    added = ["create pong-auth", "add learner-0 learner-1 learner", "own pong-auth"]
    assert scene.core.calls == added
    first = keys_in(scene.core, tmp_path)
    role = first["learner"].secret(Role.LEARNER)
    kept, removed = (first[f"learner-{rank}"].secret(Role.LEARNER, rank) for rank in range(2))
    more = Scene(tmp_path, learners=3, core=scene.core)
    more.secret.wait()
    assert scene.core.calls == [*added, "add learner-2 learner"]
    del scene.core.secrets["pong-auth"].data["learner-1"]
    more.now += 61
    more.secret.keep()
    files = keys_in(scene.core, tmp_path)
    secrets = [files[f"learner-{rank}"].secret(Role.LEARNER, rank) for rank in range(3)]
    found = [files["learner"].caller_of(secret) for secret in secrets]
    assert found == [(Role.LEARNER, 0), (Role.LEARNER, 1), (Role.LEARNER, 2)]
    assert files["learner"].caller_of(removed) is None
    assert (secrets[0], files["learner"].secret(Role.LEARNER)) == (kept, role)
    more.now += 61
    more.secret.keep()
    assert len(scene.core.calls) == 5, "nothing more is missing"


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
