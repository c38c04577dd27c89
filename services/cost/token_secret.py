"""The Secret with the tokens of a release: made by its meter, and owned by the release.

An object of the release owns it, and the Secrets that cert-manager makes: an uninstall removes them
by garbage collection, without a hook.
"""

import base64
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from seedbed.runtime.files import atomic_write
from seedbed.runtime.tokens import Role, new_rank_keys, new_token_files, ranks_with_keys
from seedbed.services.cost.cluster import load_credentials, reason_of
from seedbed.services.cost.pods import TIMEOUT_S

log = logging.getLogger(__name__)

_RETRY_S = 5.0
_LOOK_S = 60.0


class TokenSecret:
    """The Secret with the tokens, one key for each role, and for each of several learners.

    Args:
        owner: Name of the release's ConfigMap that owns the Secrets.
        namespace: Its namespace.
        name: Name of the Secret; empty where a person has made it, and only `others` are owned.
        learners: Learners of the release, of which several have a key of their rank each.
        others: Names of further Secrets of the release, which others make.
        file: Local file that receives the meter's own token.
        core: API; None takes the pod's credentials.
        clock: Monotonic time, in seconds.
    """

    def __init__(
        self,
        owner: str,
        namespace: str,
        name: str,
        learners: int,
        others: Sequence[str],
        file: Path,
        core: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if core is None:
            load_credentials()
            core = client.CoreV1Api()
        self._core, self._clock = core, clock
        self._owner, self._namespace, self._name = owner, namespace, name
        self._learners, self._others, self._file = learners, list(others), file
        self._looked: float | None = None

    def wait(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Make the Secret, and try again until the API server lets it."""
        while True:
            try:
                self._keep()
                return
            except (ApiException, HTTPError) as error:
                cause = reason_of(error) if isinstance(error, ApiException) else error
                log.warning(
                    "cannot make the Secret %s: %s; without it no pod of the release starts; tried "
                    "again in %g s",
                    self._name, cause, _RETRY_S,
                )  # fmt: skip
                sleep(_RETRY_S)

    def keep(self) -> None:
        """Make what was deleted, own what is new, and read what was rotated, once a minute.

        Raises:
            kubernetes.client.ApiException: The API server refuses.
        """
        if self._looked is None or self._clock() - self._looked >= _LOOK_S:
            self._keep()

    def _keep(self) -> None:
        self._looked = self._clock()
        owner = self._core.read_namespaced_config_map(
            self._owner, self._namespace, _request_timeout=TIMEOUT_S
        )
        if self._name:
            secret = self._read(self._name) or self._make()
            self._add_rank_keys(secret)
            self._own(secret, owner)
            text = base64.b64decode(secret.data[str(Role.OBSERVER)]).decode()
            if not self._file.exists() or self._file.read_text() != text:
                atomic_write(self._file, text, is_private=True)
        for name in self._others:
            if (secret := self._read(name)) is not None:
                self._own(secret, owner)

    def _read(self, name: str) -> Any | None:
        try:
            return self._core.read_namespaced_secret(
                name, self._namespace, _request_timeout=TIMEOUT_S
            )
        except ApiException as error:
            if error.status != 404:
                raise
            return None

    def _make(self) -> Any:
        labels = {"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/part-of": "seedbed"}
        secret = client.V1Secret(
            metadata=client.V1ObjectMeta(name=self._name, labels=labels),
            string_data=new_token_files(),
        )
        made = self._core.create_namespaced_secret(
            self._namespace, secret, _request_timeout=TIMEOUT_S
        )
        log.info("Secret %s created", self._name)
        return made

    def _add_rank_keys(self, secret: Any) -> None:
        """Make the keys of ranks that the Secret lacks, and give all learners their digests.

        A key is missing after more learners are wanted, and after a person has removed it to have
        another one.
        """
        ranks = ranks_with_keys(self._learners)
        keys, digests = new_rank_keys(
            rank for rank in ranks if f"{Role.LEARNER}-{rank}" not in secret.data
        )
        if not keys:
            return
        lines = base64.b64decode(secret.data[str(Role.LEARNER)]).decode().splitlines(keepends=True)
        kept = [line for line in lines if keys.keys().isdisjoint(line.split()[:1])]
        texts = {**keys, str(Role.LEARNER): "".join(kept) + digests}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        # Refused where somebody has changed the Secret meanwhile: it is read again a minute later.
        metadata = {"resourceVersion": secret.metadata.resource_version}
        self._core.patch_namespaced_secret(
            self._name,
            self._namespace,
            {"metadata": metadata, "data": data},
            _request_timeout=TIMEOUT_S,
        )
        log.info("Secret %s: keys of %s made", self._name, ", ".join(keys))

    def _own(self, secret: Any, owner: Any) -> None:
        """Make the release the owner of a Secret, which a version before may have made."""
        owners = secret.metadata.owner_references or []
        if any(one.uid == owner.metadata.uid for one in owners):
            return
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name,
                     "uid": owner.metadata.uid}  # fmt: skip
        self._core.patch_namespaced_secret(
            secret.metadata.name,
            self._namespace,
            {"metadata": {"ownerReferences": [reference]}},
            _request_timeout=TIMEOUT_S,
        )
