"""The calls to the Kubernetes API that the meter makes, each with a deadline."""

import json
import logging
from collections.abc import Callable
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from seedbed.runtime.exit_codes import ConfigError
from seedbed.services.cost.claims import Claims
from seedbed.services.cost.job_sets import JobSets
from seedbed.services.cost.pods import TIMEOUT_S, PodWatch

log = logging.getLogger(__name__)

# On the ConfigMap of the state, where an upgrade changes it without a restart of the meter.
ACTORS_ANNOTATION = "seedbed.dev/actor-replicas"


def load_credentials() -> None:
    """Load the credentials of this pod's service account, or of a KUBECONFIG.

    Raises:
        SeedbedError: CONFIG, there is neither.
    """
    try:
        config.load_incluster_config()
    except config.ConfigException:
        try:
            config.load_kube_config()
        except config.ConfigException as error:
            raise ConfigError(
                f"neither a pod's service account nor a KUBECONFIG: {error}"
            ) from error


def reason_of(error: ApiException) -> str:
    """Return why the API server refuses, in its own words."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason or error.status)


class Cluster:
    """The API server, as seen by this pod's service account or by a KUBECONFIG.

    Attributes:
        nodes_readable: Whether nodes may be read; becomes False when the API server refuses.
        chosen_actors: The chart's `actor.replicas`, as of the last read of the state; None where
            others choose the number.
        bill: Name of the state, which another release of the same name does not have.
    """

    def __init__(
        self,
        release: str,
        namespace: str,
        read_nodes: bool,
        replay: bool,
        hosts: JobSets | None = None,
        queued: bool = False,
    ) -> None:
        """Load the credentials.

        Args:
            release: Name of the Helm release.
            namespace: Its namespace.
            read_nodes: Whether the role of this pod allows to read nodes.
            replay: Whether the release has replay shards.
            hosts: The hosts of a learner that has several.
            queued: Whether Kueue admits the StatefulSets.

        Raises:
            SeedbedError: CONFIG, there is neither a service account nor a KUBECONFIG.
        """
        load_credentials()
        self._core, self._apps = client.CoreV1Api(), client.AppsV1Api()
        self._release, self._namespace = release, namespace
        self._replay, self._hosts, self._queued = replay, hosts, queued
        selector = f"app.kubernetes.io/name=seedbed,app.kubernetes.io/instance={release}"
        self._pods = PodWatch(self._core, namespace, selector)
        self._claims = Claims(self._core, namespace, selector)
        self.nodes_readable = read_nodes
        self.chosen_actors: int | None = None
        self.bill = ""
        self._nodes: dict[str, Any] = {}

    def pods(self) -> list[Any]:
        """Return the release's present `V1Pod`s, with the fields that the watch keeps."""
        return self._pods.refresh()

    def claims(self) -> list[Any]:
        """Return the release's `V1PersistentVolumeClaim`s."""
        return self._claims.present()

    def node(self, name: str) -> Any | None:
        """Return a `V1Node`, read once; None where nodes may not be read, which is logged once."""
        if name in self._nodes or not self.nodes_readable:
            return self._nodes.get(name)
        try:
            self._nodes[name] = self._core.read_node(name, _request_timeout=TIMEOUT_S)
        except ApiException as error:
            if error.status in (401, 403):
                log.warning(
                    "nodes may not be read (%s): the pods' requests and the default tier and "
                    "family decide; cost.readNodes gives the right",
                    error.reason,
                )
                self.nodes_readable = False
            elif error.status != 404:  # 404: the node has gone meanwhile
                raise
        return self._nodes.get(name)

    def wanted_replicas(self) -> dict[str, int]:
        """Return what `.spec.replicas` of the workloads says, by component."""
        read = self._apps.read_namespaced_stateful_set_scale
        readers = {"actor": self._apps.read_namespaced_deployment_scale}
        if self._hosts is None:
            readers["learner"] = read
        if self._replay:
            readers["replay"] = read
        wanted = {}
        if self._hosts is not None:
            wanted["learner"] = self._hosts.wanted(f"{self._release}-learner", self._namespace)
        for component, reader in readers.items():
            name = f"{self._release}-{component}"
            spec = reader(name, self._namespace, _request_timeout=TIMEOUT_S).spec
            wanted[component] = (spec.replicas if spec else None) or 0
        return wanted

    @property
    def host_restarts(self) -> int:
        """Restarts of a learner of several hosts, whose pods are new after each."""
        return self._hosts.restarts if self._hosts is not None else 0

    def state(self) -> dict[str, str]:
        """Read the data of the release's state ConfigMap."""
        found = self._core.read_namespaced_config_map(
            f"{self._release}-state", self._namespace, _request_timeout=TIMEOUT_S
        )
        annotations = (found.metadata and found.metadata.annotations) or {}
        chosen = annotations.get(ACTORS_ANNOTATION, "")
        self.chosen_actors = int(chosen) if chosen.isdigit() else None
        self.bill = (found.metadata and found.metadata.uid) or ""
        return dict(found.data or {})

    def save_state(self, state: dict[str, str | None]) -> None:
        """Change keys of the release's state ConfigMap; None removes a key."""
        self._core.patch_namespaced_config_map(
            f"{self._release}-state", self._namespace, {"data": state}, _request_timeout=TIMEOUT_S
        )

    def remove_meter(self) -> None:
        """Delete the last resort, and the Deployment of the meter, which ends this process."""
        batch, background = client.BatchV1Api(), {"propagationPolicy": "Background"}
        removals: dict[str, Callable[..., object]] = {
            f"{self._release}-last-resort": batch.delete_namespaced_cron_job,
            f"{self._release}-cost": self._apps.delete_namespaced_deployment,
        }
        for name, delete in removals.items():
            try:
                delete(name, self._namespace, body=background, _request_timeout=TIMEOUT_S)
            except ApiException as error:
                if error.status != 404:  # a meter before this one has come so far
                    raise

    def scale(self, component: str, replicas: int) -> None:
        """Scale `actor`, `learner` or `replay`; a release may have no replay shards."""
        if component == "replay" and not self._replay:
            return
        if component == "learner" and self._hosts is not None:
            self._hosts.scale(f"{self._release}-learner", self._namespace, replicas)
            return
        scale: Callable[..., object] = self._apps.patch_namespaced_stateful_set_scale
        if component == "actor":
            scale = self._apps.patch_namespaced_deployment_scale
        elif self._queued:
            # Kueue writes the number into the pods' template, and does not see /scale.
            scale = self._apps.patch_namespaced_stateful_set
        name, body = f"{self._release}-{component}", {"spec": {"replicas": replicas}}
        scale(name, self._namespace, body, _request_timeout=TIMEOUT_S)
