"""What kubectl shows of one release: its objects, their events, and what may not be read."""

import json
import re
from collections.abc import Iterator, Sequence

from seedbed.deploy.obstacles import Events
from seedbed.deploy.plan import ApiObject, helm_release, state_of
from seedbed.deploy.programs import attempt, run

_LABEL = "app.kubernetes.io/instance"
_OF_SEEDBED = "app.kubernetes.io/name=seedbed"
_KINDS = (
    "deployments.apps", "statefulsets.apps", "pods", "cronjobs.batch", "persistentvolumeclaims",
    "configmaps",
)  # fmt: skip
_JOB_SETS = "jobsets.jobset.x-k8s.io"
_FORBIDDEN = re.compile(r'cannot \w+ resource "([a-z/]+)"')


class ReleaseView:
    """One release as kubectl shows it, read once.

    Attributes:
        name: Name of the release.
        namespace: Its namespace.
        kubectl: The program with its options.
        objects: Its objects.
        events: Events of the namespace.
        forbidden: Kinds of objects that this account may not read.
    """

    def __init__(self, name: str, namespace: str) -> None:
        """Read the objects and events.

        Args:
            name: Name of the release.
            namespace: Its namespace.

        Raises:
            SeedbedError: DEPLOY, no cluster answers.
        """
        self.name, self.namespace = name, namespace
        self.kubectl = ("kubectl", f"--namespace={namespace}")
        self.forbidden: list[str] = []
        self.objects = self._get(",".join(_KINDS), f"--selector={_LABEL}={name}")
        if not self.objects and (own := self._named_by_helm(name)):  # fullnameOverride
            self.name = name = own
            self.objects = self._get(",".join(_KINDS), f"--selector={_LABEL}={name}")
        # A learner of several hosts; a cluster without JobSets has no such kind.
        if not self.of("StatefulSet", "learner") and self._is_there(_JOB_SETS):
            self.objects += self._get(_JOB_SETS, f"--selector={_LABEL}={name}")
        self.events = Events(self._get("events"))

    def of(self, kind: str, component: str = "") -> list[ApiObject]:
        """Return the objects of a kind.

        Args:
            kind: Such as `Pod`.
            component: Component of the release; empty: any.
        """
        label = "app.kubernetes.io/component"
        return [
            item
            for item in self.objects
            if item["kind"] == kind
            and (not component or item["metadata"].get("labels", {}).get(label) == component)
        ]

    @property
    def state(self) -> dict[str, str] | None:
        """The release's state; None where its ConfigMap is not there."""
        return state_of(self.objects, self.name)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return those of some objects that are not there, as far as they may be read.

        Args:
            names: `secret/NAME` or `configmap/NAME`.
        """
        if not names:
            return []
        done = attempt(*self.kubectl, "get", *names, "-o=name", "--ignore-not-found")
        self._note_forbidden(done.stderr)
        unread = set(self.forbidden)
        return [
            name
            for name in names
            if name not in done.stdout.split() and f"{name.partition('/')[0]}s" not in unread
        ]

    def log(self, pod: str, container: str) -> list[str]:
        """Return the newest lines of a container's log; none where it may not be read."""
        done = attempt(*self.kubectl, "logs", pod, f"--container={container}", "--tail=100")
        self._note_forbidden(done.stderr)
        return done.stdout.splitlines()

    def others(self) -> Iterator[tuple[str, str]]:
        """Yield namespace and name of each release of Seedbed that this account sees."""
        kinds = "deployments.apps,statefulsets.apps"
        words = ("get", kinds, f"--selector={_OF_SEEDBED}", "-o=json")
        done = attempt("kubectl", *words, "--all-namespaces")
        if done.returncode:
            done = attempt(*self.kubectl, *words)
        for item in json.loads(done.stdout or '{"items": []}')["items"]:
            labels = item["metadata"].get("labels", {})
            yield item["metadata"]["namespace"], str(labels.get(_LABEL, ""))

    def _named_by_helm(self, name: str) -> str:
        """Return what the objects of Helm's release are called; empty where there are none."""
        for item in self._get("deployments.apps", f"--selector={_OF_SEEDBED}"):
            if helm_release(item) == name:
                return str(item["metadata"]["labels"].get(_LABEL, ""))
        return ""

    def _is_there(self, resource: str) -> bool:
        group = resource.partition(".")[2]
        found = attempt(*self.kubectl, "api-resources", f"--api-group={group}", "-o=name")
        return resource in found.stdout.split()

    def _get(self, *words: str) -> list[ApiObject]:
        command = (*self.kubectl, "get", *words, "-o=json")
        done = attempt(*command)
        # What may be read comes even where something else is refused.
        if not self._note_forbidden(done.stderr) and done.returncode:
            run(*command)  # its error
        try:
            return [ApiObject(item) for item in json.loads(done.stdout)["items"]]
        except (ValueError, KeyError):
            return []

    def _note_forbidden(self, written: str) -> bool:
        found = _FORBIDDEN.findall(written)
        self.forbidden += [kind for kind in found if kind not in self.forbidden]
        return bool(found)
