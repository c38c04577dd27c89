"""JobSets of learners of several hosts, each of which starts and ends a learner's hosts as one."""

from typing import Any

from kubernetes import client

from seedbed.services.cost.pods import TIMEOUT_S

_API = ("jobset.x-k8s.io", "v1alpha2")


class JobSets:
    """The JobSets of a release, one for each learner.

    Attributes:
        restarts: How often they have started all hosts again, as of the last look.
    """

    def __init__(self, hosts: int, learners: int = 1) -> None:
        """Know of no restart.

        Args:
            hosts: Number of hosts of a learner.
            learners: Number of learners; each of several has a JobSet `NAME-RANK`.
        """
        self._hosts, self._learners = hosts, learners
        self.restarts = 0

    def _names(self, name: str) -> list[str]:
        if self._learners == 1:
            return [name]
        return [f"{name}-{rank}" for rank in range(self._learners)]

    def wanted(self, name: str, namespace: str) -> int:
        """Return how many pods the JobSets ask for.

        Args:
            name: Name of the one JobSet, or what those of several learners begin with.
            namespace: Its namespace.
        """
        api = client.CustomObjectsApi()
        learners = restarts = 0
        for each in self._names(name):
            found: Any = api.get_namespaced_custom_object(
                *_API, namespace, "jobsets", each, _request_timeout=TIMEOUT_S
            )
            restarts += int(found.get("status", {}).get("restarts", 0))
            learners += not found["spec"].get("suspend")
        self.restarts = restarts
        return learners * self._hosts

    def scale(self, name: str, namespace: str, pods: int) -> None:
        """Start all hosts of all learners, or end them.

        Args:
            name: Name as of `wanted`.
            namespace: Its namespace.
            pods: Number of pods; 0 ends them, any other starts all.
        """
        api = client.CustomObjectsApi()
        for each in self._names(name):
            api.patch_namespaced_custom_object(
                *_API,
                namespace,
                "jobsets",
                each,
                {"spec": {"suspend": not pods}},
                _content_type="application/merge-patch+json",
                _request_timeout=TIMEOUT_S,
            )
