"""The calls to the Kubernetes API that the controller of a set makes, each with a deadline."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from seedbed.deploy.obstacles import conditions_of, time_of, why_no_node
from seedbed.services.cost.cluster import load_credentials, reason_of
from seedbed.services.cost.pods import TIMEOUT_S
from seedbed.sets.run_objects import MANAGER

# Paths of the kinds that a run may have.
_PATHS = {
    "ConfigMap": "/api/v1/{}/configmaps",
    "Service": "/api/v1/{}/services",
    "PersistentVolumeClaim": "/api/v1/{}/persistentvolumeclaims",
    "Deployment": "/apis/apps/v1/{}/deployments",
    "StatefulSet": "/apis/apps/v1/{}/statefulsets",
    "CronJob": "/apis/batch/v1/{}/cronjobs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/{}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/{}/poddisruptionbudgets",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/{}/jobsets",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/{}/podmonitors",
    "PodMonitoring": "/apis/monitoring.googleapis.com/v1/{}/podmonitorings",
    "ScaledObject": "/apis/keda.sh/v1alpha1/{}/scaledobjects",
    "Certificate": "/apis/cert-manager.io/v1/{}/certificates",
    "Issuer": "/apis/cert-manager.io/v1/{}/issuers",
}
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class Refused(Exception):
    """The API server refuses an object: a quota, a policy, a webhook or a right is in the way."""


class Pod(NamedTuple):
    """One pod of a run.

    Attributes:
        run: Name of the run.
        component: `learner`, `actor`, `replay`, `cost` or `last-resort`.
        name: Name of the pod.
        waits: Why it has no node, in the scheduler's words; "" of one that has.
        uid: What tells it from another pod of that name.
        created: When it was made, in a form that sorts.
        restarts: Restarts of the container that its component is named after.
        has_failed: It has ended, and not by itself.
        is_preempted: A drain, an eviction, or the loss of its node takes it, or has taken it.
    """

    run: str
    component: str
    name: str
    waits: str = ""
    uid: str = ""
    created: str = ""
    restarts: int = 0
    has_failed: bool = False
    is_preempted: bool = False


class SetApi:
    """The API server, as seen by the controller's account or by a KUBECONFIG.

    Args:
        name: Name of the set.
        namespace: Its namespace.

    Attributes:
        calls: Calls so far.
    """

    def __init__(self, name: str, namespace: str) -> None:
        load_credentials()
        self._client = client.ApiClient()
        self._name, self._namespace = name, namespace
        self.calls = 0

    def state(self) -> dict[str, str]:
        """Read what people and this controller have written into the set's state.

        Raises:
            kubernetes.client.ApiException: The API server refuses.
        """
        found = self._call("GET", self._path("ConfigMap", f"{self._name}-set-state"))
        return dict(found.get("data") or {})

    def save_state(self, data: Mapping[str, str | None], runs: str) -> None:
        """Change keys of the set's state.

        Args:
            data: Texts by key; None removes a key.
            runs: The runs, compressed, in base64.

        Raises:
            kubernetes.client.ApiException: The API server refuses.
        """
        body = {"data": dict(data), "binaryData": {"runs.json.gz": runs}}
        self._call("PATCH", self._path("ConfigMap", f"{self._name}-set-state"), body, _MERGE)

    def owner(self) -> dict[str, Any]:
        """Return the reference to the set's release by which runs go with it."""
        found = self._call("GET", self._path("ConfigMap", f"{self._name}-set"))
        meta = found["metadata"]
        return {
            "apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"],
        }  # fmt: skip

    def run_state(self, run: str) -> dict[str, str] | None:
        """Return what a run's meter keeps; None where the run has no state yet."""
        try:
            found = self._call("GET", self._path("ConfigMap", f"{run}-state"))
        except ApiException as error:
            if error.status != 404:
                raise
            return None
        return dict(found.get("data") or {})

    def save_run_state(self, run: str, data: Mapping[str, str | None]) -> None:
        """Change keys of a run's state; a run without one is left as it is."""
        try:
            body = {"data": dict(data)}
            self._call("PATCH", self._path("ConfigMap", f"{run}-state"), body, _MERGE)
        except ApiException as error:
            if error.status != 404:
                raise

    def apply(self, item: Mapping[str, Any], dry_run: bool = False) -> None:
        """Make an object or change it, on the server's side; the same one twice changes nothing.

        Args:
            item: The object.
            dry_run: Only ask whether the API server would take it.

        Raises:
            Refused: The API server does not take the object.
            kubernetes.client.ApiException: It cannot answer now.
        """
        path = self._path(item["kind"], item["metadata"]["name"])
        query = [("fieldManager", MANAGER), ("force", "true")]
        query += [("dryRun", "All")] * dry_run
        try:
            self._call("PATCH", path, item, _APPLY, query)
        except ApiException as error:
            if error.status in (400, 403, 409, 422):
                words = f"{item['kind']} {item['metadata']['name']}"
                raise Refused(f"{words} is refused: {reason_of(error)}") from error
            raise

    def delete(self, kind: str, name: str) -> None:
        """Delete an object with what it has made; one that is gone already is no error."""
        try:
            self._call("DELETE", self._path(kind, name), {"propagationPolicy": "Background"})
        except ApiException as error:
            if error.status != 404:
                raise

    def pods(self) -> list[Pod]:
        """Return the pods of all runs of the set, but for those that have done their work."""
        selector = f"seedbed.dev/set={self._name},app.kubernetes.io/name=seedbed"
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        found, more = list[Pod](), ""
        while True:
            query = [("labelSelector", selector), ("limit", "500")]
            answer = self._call("GET", path, query=[*query, ("continue", more)] if more else query)
            found += [
                _pod(item) for item in answer["items"] if item["status"]["phase"] != "Succeeded"
            ]
            more = answer["metadata"].get("continue", "")
            if not more:
                return found

    def claims(self, run: str, without_volume: bool = False) -> list[str]:
        """Return the names of the PersistentVolumeClaims of a run.

        Args:
            run: The run.
            without_volume: Only those that have never had a volume, and so have no data.
        """
        selector = f"seedbed.dev/set={self._name},app.kubernetes.io/instance={run}"
        path = f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims"
        found = self._call("GET", path, query=[("labelSelector", selector), ("limit", "500")])
        return [
            item["metadata"]["name"]
            for item in found["items"]
            if not without_volume or item["status"].get("phase") == "Pending"
        ]

    def refusals(self) -> list[dict[str, Any]]:
        """Return the events of the namespace by which pods could not be made, the newest last."""
        path = f"/api/v1/namespaces/{self._namespace}/events"
        query = [("fieldSelector", "reason=FailedCreate"), ("limit", "500")]
        items: list[dict[str, Any]] = self._call("GET", path, query=query)["items"]
        return sorted(items, key=time_of)

    def _path(self, kind: str, name: str) -> str:
        return f"{_PATHS[kind].format(f'namespaces/{self._namespace}')}/{name}"

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        query: Any = (),
    ) -> Any:
        self.calls += 1
        # The client writes JSON for JSON alone, and JSON is YAML.
        text = json.dumps(body) if content_type == _APPLY else body
        headers = {"Accept": "application/json", "Content-Type": content_type}
        request = self._client.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params=headers,
            body=text,
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*request, _request_timeout=TIMEOUT_S)
        content = answer.read().decode()
        if not 200 <= answer.status < 300:
            raise ApiException.from_response(http_resp=answer, body=content, data=None)
        return json.loads(content)


def _pod(item: Mapping[str, Any]) -> Pod:
    meta, status = item["metadata"], item["status"]
    run, component = (
        meta["labels"].get(f"app.kubernetes.io/{key}", "") for key in ("instance", "component")
    )
    containers = status.get("containerStatuses", [])
    return Pod(
        run,
        component,
        meta["name"],
        why_no_node(item),
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        restarts=sum(one["restartCount"] for one in containers if one["name"] == component),
        has_failed=status["phase"] == "Failed",
        is_preempted=conditions_of(item).get("DisruptionTarget", {}).get("status") == "True",
    )
