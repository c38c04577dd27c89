"""Types of the chart's values, and what the pods of all components have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
# An amount of the API server; `_validate-amounts.tpl` says what one is.
Quantity = str | float
Percent = Annotated[str, Field(pattern=r"^[0-9]+%$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Cidr = Annotated[
    str, Field(pattern=r"^([0-9.]+/[0-9]{1,2}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]{1,3})$")
]
Strings = dict[str, str]
# An address and a path as an image's name has them: no scheme, small letters.
_REGISTRY = r"^([A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9a-fA-F:]+\](:[0-9]+)?)?(/[a-z0-9._-]+)*$"
_TAG = r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"


class Section(BaseModel):
    """Base of the sections. A docstring below a value is its description."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Images(Section):
    """What the images of the release share."""

    registry: str = Field("localhost", pattern=_REGISTRY)
    """Where they are pulled from; a component's own comes first."""
    tag: str = Field("", pattern=_TAG)
    """Default: the chart's appVersion."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """As in a pod."""
    pullSecrets: list[str] = []
    """Names of secrets."""


class Image(Section):
    """Image of a component."""

    registry: str = Field("", pattern=_REGISTRY)
    """Default: `image.registry`."""
    repository: str = Field("", pattern=r"^[^:@]*$")
    """Without a tag or a digest. Default: the component's, such as seedbed-actor."""
    tag: str = Field("", pattern=_TAG)
    """Default: `image.tag`."""
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """sha256:...; it wins over a tag."""


class RoleNetworkPolicy(Section):
    """The policy of one component."""

    extraEgress: list[dict[str, Any]] = []
    """More egress: NetworkPolicy egress rules, such as to W&B."""


class Amounts(Section):
    """CPU and memory."""

    cpu: Quantity | None = None
    """Cores."""
    memory: Quantity | None = None
    """Bytes."""
    ephemeralStorage: Quantity | None = Field(None, alias="ephemeral-storage")
    """Bytes of local disk."""


class Resources(Section):
    """What a container asks for, and its limits."""

    requests: Amounts = Field(default_factory=Amounts)
    """What the scheduler counts."""
    limits: Amounts = Field(default_factory=Amounts)
    """What is enforced."""


class ServiceAccount(Section):
    """Service account of a component."""

    create: bool = True
    """Without it `name` must be there already."""
    name: str = ""
    """Default: the component's, such as RELEASE-learner."""
    annotations: Strings = {}
    """Workload identity, for `gs://`."""


class Pod(Section):
    priorityClassName: str = ""
    """As in a pod."""
    queueName: str = ""
    """Kueue: queue of this role, by default the release's `queueName`."""
    queuePriorityClass: str = ""
    """Kueue: its WorkloadPriorityClass, kueue.x-k8s.io/priority-class."""
    nodeSelector: Strings = {}
    """As in a pod."""
    tolerations: list[dict[str, Any]] = []
    """As in a pod."""
    affinity: dict[str, Any] = {}
    """As in a pod."""
    podAnnotations: Strings = {}
    """On the pods."""
    podLabels: Strings = {}
    """On the pods."""
    serviceAccount: ServiceAccount = Field(default_factory=ServiceAccount, description="")
    env: list[dict[str, Any]] = []
    """As in a container; a name of the chart's is replaced."""
    envFrom: list[dict[str, Any]] = []
    """As in a container."""
    extraVolumes: list[dict[str, Any]] = []
    """As in a pod, beside the chart's."""
    extraVolumeMounts: list[dict[str, Any]] = []
    """As in a container, beside the chart's."""
    extraContainers: list[dict[str, Any]] = []
    """As in a pod, beside the chart's."""
    initContainers: list[dict[str, Any]] = []
    """As in a pod."""
    podSpec: dict[str, Any] = {}
    """Fields of the pod's spec, merged over the chart's at the end."""
    shmSize: Quantity | Literal[""] = ""
    """/dev/shm in memory, which counts as the container's."""


class Scheduled(Pod):
    spot: bool = False
    """On Spot nodes (GKE's selector and toleration)."""
    computeClass: str = ""
    """cloud.google.com/compute-class."""
    networkPolicy: RoleNetworkPolicy = Field(default_factory=RoleNetworkPolicy, description="")


def resources(cpu: str, memory: str) -> Resources:
    return Resources.model_validate(
        {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}
    )
