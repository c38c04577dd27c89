"""The hosts of learners, which a JobSet each or a LeaderWorkerSet starts and ends as one."""

from typing import Any

from kubernetes import client

from seedbed.services.cost.pods import TIMEOUT_S

# Group, version and plural of the API.
_APIS = {
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
}


class HostSet:
    """Workloads of learners of several hosts.

    Attributes:
        restarts: How often JobSets have started all hosts again, as of the last look.
    """

    def __init__(self, kind: str, hosts: int, learners: int = 1) -> None:
        """Know of no restart.

        Args:
            kind: Kind of the workload, `JobSet` or `LeaderWorkerSet`.
            hosts: Number of hosts of a learner.
            learners: Number of learners; each of several has a JobSet, `NAME-RANK`.
        """
        self._kind, self._hosts, self._learners = kind, hosts, learners
        self.restarts = 0

    def _names(self, name: str) -> list[str]:
        if self._kind == "JobSet" and self._learners > 1:
            return [f"{name}-{rank}" for rank in range(self._learners)]
        return [name]

    def wanted(self, name: str, namespace: str) -> int:
        """Return how many pods the workloads ask for.

        Args:
            name: Name of the one workload, or what those of several learners begin with.
            namespace: Its namespace.
        """
        group, version, plural = _APIS[self._kind]
        api = client.CustomObjectsApi()
        learners = restarts = 0
        for each in self._names(name):
            found: Any = api.get_namespaced_custom_object(
                group, version, namespace, plural, each, _request_timeout=TIMEOUT_S
            )
            restarts += int(found.get("status", {}).get("restarts", 0))
            spec = found["spec"]
            if self._kind == "JobSet":
                learners += not spec.get("suspend")
            else:
                learners += int(spec.get("replicas", 1))
        self.restarts = restarts
        return learners * self._hosts

    def scale(self, name: str, namespace: str, pods: int) -> None:
        """Start all hosts of all learners, or end them.

        Args:
            name: Name as of `wanted`.
            namespace: Its namespace.
            pods: Number of pods; 0 ends them, any other starts all.
        """
        group, version, plural = _APIS[self._kind]
        spec = (
            {"suspend": not pods}
            if self._kind == "JobSet"
            else {"replicas": self._learners if pods else 0}
        )
        api = client.CustomObjectsApi()
        for each in self._names(name):
            api.patch_namespaced_custom_object(
                group,
                version,
                namespace,
                plural,
                each,
                {"spec": spec},
                _content_type="application/merge-patch+json",
                _request_timeout=TIMEOUT_S,
            )
