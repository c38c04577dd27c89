"""The hosts of a learner, which a JobSet or a LeaderWorkerSet starts and ends as one."""

from typing import Any

from kubernetes import client

from seedbed.services.cost.pods import TIMEOUT_S

# Group, version and plural of the API.
_APIS = {
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
}


class HostSet:
    """Workload of a learner of several hosts.

    Attributes:
        restarts: How often a JobSet has started all hosts again, as of the last look.
    """

    def __init__(self, kind: str, hosts: int) -> None:
        """Know of no restart.

        Args:
            kind: Kind of the workload, `JobSet` or `LeaderWorkerSet`.
            hosts: Number of hosts.
        """
        self._kind, self._hosts = kind, hosts
        self.restarts = 0

    def wanted(self, name: str, namespace: str) -> int:
        """Return how many pods the workload asks for: all of them, or none.

        Args:
            name: Name of the workload.
            namespace: Its namespace.
        """
        group, version, plural = _APIS[self._kind]
        found: Any = client.CustomObjectsApi().get_namespaced_custom_object(
            group, version, namespace, plural, name, _request_timeout=TIMEOUT_S
        )
        self.restarts = int(found.get("status", {}).get("restarts", 0))
        spec = found["spec"]
        runs = not spec.get("suspend") if self._kind == "JobSet" else spec.get("replicas", 1) > 0
        return self._hosts if runs else 0

    def scale(self, name: str, namespace: str, pods: int) -> None:
        """Start all hosts, or end them.

        Args:
            name: Name of the workload.
            namespace: Its namespace.
            pods: Number of pods; 0 ends them, any other starts all.
        """
        group, version, plural = _APIS[self._kind]
        spec = {"suspend": not pods} if self._kind == "JobSet" else {"replicas": int(pods > 0)}
        client.CustomObjectsApi().patch_namespaced_custom_object(
            group,
            version,
            namespace,
            plural,
            name,
            {"spec": spec},
            _content_type="application/merge-patch+json",
            _request_timeout=TIMEOUT_S,
        )
