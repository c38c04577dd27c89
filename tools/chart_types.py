"""Types of the chart's values, and what the pods of all roles have in common."""

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
    """Where they are pulled from."""
    tag: str = Field("", pattern=_TAG)
    """Default: the chart's appVersion."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """As in a pod."""
    pullSecrets: list[str] = []
    """Names of secrets."""


class Image(Section):
    """Image of a role."""

    registry: str = Field("", pattern=_REGISTRY)
    """Default: `image.registry`."""
    repository: str = Field("", pattern=r"^[^:@]*$")
    """Without a tag or a digest. Default: the role's, such as seedbed-actor."""
    tag: str = Field("", pattern=_TAG)
    """Default: `image.tag`."""
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$")
    """sha256:...; it wins over a tag."""


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
    """Service account of a role."""

    create: bool = True
    """Without it `name` must be there already."""
    name: str = ""
    """Default: the role's, such as RELEASE-learner."""
    annotations: Strings = {}
    """Such as those of a workload identity."""


class Pod(Section):
    """The pods of all roles."""

    nodeSelector: Strings = {}
    """As in a pod."""
    tolerations: list[dict[str, Any]] = []
    """As in a pod."""
    affinity: dict[str, Any] = {}
    """As in a pod."""
    computeClass: str = ""
    """cloud.google.com/compute-class."""
    priorityClassName: str = ""
    """As in a pod."""
    queueName: str = ""
    """Kueue: kueue.x-k8s.io/queue-name of actors, learners and shards."""
    queuePriorityClass: str = ""
    """Kueue: a WorkloadPriorityClass, kueue.x-k8s.io/priority-class."""
    annotations: Strings = {}
    """On the pods; they win over the chart's."""
    labels: Strings = {}
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
    spec: dict[str, Any] = {}
    """Fields of the pod's spec, merged over the chart's at the end."""
    shmSize: Quantity | Literal[""] = ""
    """/dev/shm in memory, which counts as the container's."""
    extraEgress: list[dict[str, Any]] = []
    """More egress: NetworkPolicy egress rules, such as to W&B."""


class Role(Section):
    """What the values of all roles have."""

    pod: Pod = Field(default_factory=Pod)
    """Keys of `pod` for this role: its maps over those, its lists behind those."""


class RoleWithImage(Role):
    """A role that has an image of its own."""

    image: Image = Field(default_factory=Image)
    """registry, repository, tag or digest of its own image, over `image`."""


def resources(cpu: str, memory: str, limit: str) -> Resources:
    """Return requests of a container, and its limit of memory."""
    return Resources.model_validate(
        {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}
    )
