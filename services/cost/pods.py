"""The pods of a release, followed by a watch, so that a look costs what has changed."""

import json
from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.client.exceptions import ApiException

TIMEOUT_S = 10.0
PAGE = 250
# How long a look waits for changes. The API server ends the watch after that time.
WATCH_S = 1
# Templates of pods that are kept; a release has one for each component and rollout.
SHARED = 64

# What is kept of a pod, by the API's names: the rest of a pod is most of its memory.
_CONTAINER: dict[str, Any] = dict.fromkeys(("name", "resources", "restartPolicy"))
_STATUS: dict[str, Any] = dict.fromkeys(
    ("name", "restartCount", "state", "lastState", "ready", "image", "imageID")
)
_VOLUME: dict[str, Any] = dict.fromkeys(("name", "persistentVolumeClaim", "ephemeral"))
_KEPT: dict[str, Any] = {
    "metadata": dict.fromkeys(
        (
            "name",
            "uid",
            "resourceVersion",
            "labels",
            "annotations",
            "creationTimestamp",
            "deletionTimestamp",
        )
    ),
    "spec": {
        **dict.fromkeys(("nodeName", "nodeSelector", "resources", "overhead", "resourceClaims")),
        "containers": _CONTAINER,
        "initContainers": _CONTAINER,
        "volumes": _VOLUME,
    },
    "status": {
        **dict.fromkeys(("phase", "startTime")),
        "containerStatuses": _STATUS,
        "initContainerStatuses": _STATUS,
    },
}


class PodWatch:
    """Pods of a release as of the last look."""

    def __init__(self, core: CoreV1Api, namespace: str, selector: str) -> None:
        """Follow nothing yet."""
        self._core, self._namespace, self._selector = core, namespace, selector
        self._client = ApiClient()
        self._pods: dict[str, Any] = {}
        # What equal pods share: most of a pod is its template.
        self._shared: dict[str, Any] = {}
        # "" before the first list, and after anything that went wrong.
        self._version = ""

    def refresh(self) -> list[Any]:
        """Return the present `V1Pod`s, with the fields that `_KEPT` names.

        Raises:
            Exception: The API server does not answer, or not with pods; the next look lists anew.
        """
        try:
            if self._version:
                self._follow()
            else:
                self._list()
        except ApiException as error:
            self._version = ""
            if error.status != 410:  # the version is too old to be followed
                raise
            self._list()
        except BaseException:
            self._version = ""
            raise
        return list(self._pods.values())

    def _list(self) -> None:
        found: dict[str, Any] = {}
        more: dict[str, Any] = {}
        while True:
            response: Any = self._core.list_namespaced_pod(
                self._namespace,
                label_selector=self._selector,
                limit=PAGE,
                **more,
                _preload_content=False,
                _request_timeout=TIMEOUT_S,
            )
            if response.status != 200:
                raise ApiException(http_resp=response)
            page = json.loads(response.data)
            found |= {pod["metadata"]["uid"]: self._read(pod) for pod in page["items"]}
            if not page["metadata"].get("continue"):
                break
            more = {"_continue": page["metadata"]["continue"]}
        self._pods, self._version = found, page["metadata"]["resourceVersion"]

    def _follow(self) -> None:
        response: Any = self._core.list_namespaced_pod(
            self._namespace,
            label_selector=self._selector,
            resource_version=self._version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_S,
            _preload_content=False,
            _request_timeout=TIMEOUT_S,
        )
        if response.status != 200:
            raise ApiException(http_resp=response)
        for line in response.data.splitlines():
            event = json.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise ApiException(status=status.get("code"), reason=status.get("message"))
            pod = event["object"]
            if event["type"] in ("ADDED", "MODIFIED"):
                self._pods[pod["metadata"]["uid"]] = self._read(pod)
            elif event["type"] == "DELETED":
                self._pods.pop(pod["metadata"]["uid"], None)
            self._version = pod["metadata"]["resourceVersion"]

    def _read(self, pod: Mapping[str, Any]) -> Any:
        known = self._pods.get(pod["metadata"]["uid"])
        if (
            known is not None
            and known.metadata.resource_version == pod["metadata"]["resourceVersion"]
        ):
            return known
        kept = _kept(pod, _KEPT)
        node = kept["spec"].pop("nodeName", None)
        read = self._object("V1Pod", {**kept, "spec": None})
        read.spec = self._object("V1PodSpec", kept["spec"], shared=True).model_copy()
        read.spec.node_name = node
        return read

    def _object(self, kind: str, fields: Any, shared: bool = False) -> Any:
        text = json.dumps(fields)
        if text in self._shared:
            return self._shared[text]
        made = self._client.deserialize(text, kind, "application/json")
        if shared:
            if len(self._shared) >= SHARED:
                self._shared.clear()
            self._shared[text] = made
        return made


def _kept(value: Any, fields: Mapping[str, Any] | None) -> Any:
    """Return an object, or each one of a list, with some of its fields; None keeps all."""
    if fields is None or value is None:
        return value
    if isinstance(value, list):
        return [_kept(item, fields) for item in value]
    return {name: _kept(value[name], fields[name]) for name in fields if name in value}
